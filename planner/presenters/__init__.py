"""What the pages show, as values: computed here, so that templates only lay out."""
