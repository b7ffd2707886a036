"""The planner's pages. Every one is for its owner alone: what belongs to somebody else does not exist."""
