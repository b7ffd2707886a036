from __future__ import annotations

from django.template.loader import render_to_string

from fleet.common.charts import Chart, ChartTable, label

HOSTILE = "</script><img src=x onerror=alert(1)>"


def _chart() -> Chart:
    return Chart(
        id="sample",
        title=HOSTILE,
        traces=({"type": "bar", "x": [1], "y": [label(HOSTILE)]},),
        table=ChartTable(columns=("Name", "Value"), rows=((HOSTILE, "1"),), numeric=frozenset({1})),
        layout={"xaxis": {"title": "value"}},
    )


def test_labels_reach_plotly_as_text_not_as_markup() -> None:
    assert label("<b>a & b</b>") == "&lt;b&gt;a &amp; b&lt;/b&gt;"


def test_a_chart_cannot_leave_its_json_block() -> None:
    html = render_to_string("components/chart.html", {"chart": _chart()})

    assert "<img" not in html
    assert html.count("</script>") == 1
    assert 'data-chart="sample-figure"' in html
    assert '<script id="sample-figure" type="application/json">' in html


def test_behind_every_chart_is_a_table() -> None:
    html = render_to_string("components/chart.html", {"chart": _chart()})

    assert html.count("<tr>") == 2
    assert html.count('class="num"') == 2
