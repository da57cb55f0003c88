"""The few kinds of panel the dashboards are made of, so that all of them read, join and fail alike.

A panel never says "fine" for want of data: what it shows when nothing was scraped is ``NO_DATA``, in every panel, and a
GPU that idles is a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

NO_DATA = "NO DATA"
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, BLUE, YELLOW, ORANGE, RED, PURPLE, GREY = "green", "blue", "yellow", "orange", "red", "purple", "#808080"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and what its series are called."""

    expr: str
    legend: str = ""
    ref: str = "A"


@dataclass(frozen=True, slots=True)
class ValueStyle:
    """How one value of an enumeration is shown."""

    text: str
    color: str


class _Common(Protocol):
    """What every builder of a panel can do; the SDK generates each apart and gives them no common type."""

    def datasource(self, datasource: model.DataSourceRef) -> Self: ...
    def description(self, description: str) -> Self: ...
    def height(self, h: int) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...
    def span(self, w: int) -> Self: ...
    def title(self, title: str) -> Self: ...


Panel = TypeVar("Panel", bound=_Common)


def lines(
    title: str, description: str, unit: str, *queries: Query, width: int = 24, height: int = 8,
    least: float | None = 0, most: float | None = None, dashed: str | None = None, stacked: bool = False,
    colors: Mapping[str, str] | None = None,
) -> timeseries.Panel:  # fmt: skip
    """Amounts over time; series whose name matches ``dashed`` are limits, drawn as dashed lines."""
    panel = (
        _panel(timeseries.Panel(), title, description, width, height).unit(unit).show_points(common_model.VisibilityMode.AUTO)
    )
    # A hole in the data stays a hole: joined up, a dead exporter would look like a quiet GPU.
    panel = panel.span_nulls(False).line_width(1.5).fill_opacity(30 if stacked else 5)  # noqa: FBT003 - the SDK's own signature
    panel = (
        panel.color_scheme(_by("palette-classic"))
        .tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI))
        .legend(_legend())
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))
    if least is not None:
        panel = panel.min(least)
    if most is not None:
        panel = panel.max(most)
    if dashed:
        style = {"fill": "dash", "dash": [8, 6]}
        changes = {"custom.lineStyle": style, "custom.fillOpacity": 0, "custom.lineWidth": 1, "color": _fixed(RED)}
        panel = panel.override_by_regexp(dashed, _changes(changes))
    for name, color in (colors or {}).items():
        panel = panel.override_by_name(name, _changes({"color": _fixed(color)}))
    for query in queries:
        panel = panel.with_target(_range(query))
    return panel


def timeline(
    title: str, description: str, looks: Mapping[int, ValueStyle], *queries: Query, width: int = 24, height: int = 8
) -> statetimeline.Panel:
    """States over time, one row a series; a hole is where nothing was scraped."""
    panel = (
        _panel(statetimeline.Panel(), title, description, width, height)
        .mappings(_mappings(looks))
        .merge_values(merge_values=True)
    )
    panel = panel.show_value(common_model.VisibilityMode.NEVER).row_height(0.85).legend(_legend())
    panel = panel.thresholds(_steps((None, GREY))).color_scheme(_by("thresholds"))
    for query in queries:
        panel = panel.with_target(_range(query))
    return panel


def number(
    title: str, description: str, unit: str, query: Query, *, steps: Sequence[tuple[float | None, str]] = ((None, BLUE),),
    looks: Mapping[int, ValueStyle] | None = None, width: int = 4, height: int = 4, decimals: int | None = None,
) -> stat.Panel:  # fmt: skip
    """One figure as it is now, and large: asked for this instant, because the last point of a range may be long ago."""
    panel = _panel(stat.Panel(), title, description, width, height).unit(unit).thresholds(_steps(*steps))
    panel = panel.color_mode(common_model.BigValueColorMode.BACKGROUND).color_scheme(_by("thresholds"))
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["last"]))
    panel = panel.graph_mode(common_model.BigValueGraphMode.NONE)
    if looks:
        panel = panel.mappings(_mappings(looks))
    if decimals is not None:
        panel = panel.decimals(decimals)
    return panel.with_target(_now(query))


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of a table: the query it comes from, its heading and unit, and how its values look.

    One without a heading is there for its labels: its value is not shown.
    """

    query: Query
    heading: str = ""
    unit: str = "none"
    looks: Mapping[int, ValueStyle] | None = None
    steps: tuple[tuple[float | None, str], ...] = ()
    decimals: int | None = None


def grid(
    title: str, description: str, cells: Sequence[Cell], *, labels: Mapping[str, str], width: int = 24, height: int = 10,
    links: Mapping[str, str] | None = None,
) -> table.Panel:  # fmt: skip
    """One row for each set of ``labels`` (label → heading), one column for each cell: joined on the labels alone."""
    panel = _panel(table.Panel(), title, description, width, height)
    for cell in cells:
        panel = panel.with_target(_now(cell.query).format(PromQueryFormat.TABLE))
    one = len(cells) == 1
    values = {("Value" if one else f"Value #{cell.query.ref}"): cell.heading for cell in cells}
    organize = {
        "excludeByName": {"Time": True} | {name: True for name, heading in values.items() if not heading},
        "indexByName": {name: index for index, name in enumerate((*labels, *values))},
        "renameByName": {name: heading for name, heading in values.items() if heading} | dict(labels),
    }
    panel = panel.transformations([
        model.DataTransformerConfig(id_val="merge", options={}),
        model.DataTransformerConfig(id_val="organize", options=organize),
    ])  # fmt: skip
    for cell in (cell for cell in cells if cell.heading):
        changes: dict[str, object] = {"unit": cell.unit}
        if cell.decimals is not None:
            changes["decimals"] = cell.decimals
        if cell.looks:
            changes |= {"mappings": _mappings(cell.looks), "custom.cellOptions": {"type": "color-background"}}
        if cell.steps:
            changes |= {"thresholds": _steps(*cell.steps).build(), "custom.cellOptions": {"type": "color-text"}}
        panel = panel.override_by_name(cell.heading, _changes(changes))
    for heading, url in (links or {}).items():
        panel = panel.override_by_name(heading, _changes({"links": [{"title": "Open", "url": url}]}))
    return panel


def row(title: str) -> dashboard.Row:
    return dashboard.Row(title)


def board(uid: str, title: str, description: str, *, since: str = "now-1h") -> dashboard.Dashboard:
    """An empty dashboard with the variables all of ours have: which Prometheus, which job, which hosts."""
    made = dashboard.Dashboard(title).uid(uid).description(description).tags(["gpuwatch"]).time(since, "now").refresh("10s")
    made = made.timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR).readonly()
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    made = made.with_variable(variable("job", "Job", "label_values(gpuwatch_build_info, job)"))
    # All jobs are those that were found: "up" has every job of Prometheus.  All hosts are any: one that never answered too.
    hosts = variable("instance", "Host", 'label_values(gpuwatch_build_info{job=~"$job"}, instance)')
    made = made.with_variable(hosts.all_value(".*"))
    return made.link(
        dashboard.DashboardLink("gpuwatch").type(model.DashboardLinkType.DASHBOARDS).tags(["gpuwatch"]).as_dropdown(as_dropdown=False)
        .include_vars(include_vars=True).keep_time(keep_time=True)
    )  # fmt: skip


def variable(name: str, label: str, query: str, *, many: bool = True) -> dashboard.QueryVariable:
    """A choice that Prometheus fills; with ``many``, any number of them and at first all."""
    made = dashboard.QueryVariable(name).label(label).datasource(DATASOURCE).sort(model.VariableSort.NATURAL_ASC)
    made = made.query({"query": query, "refId": name}).refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    if not many:
        return made
    everything = model.VariableOption(selected=True, text="All", value="$__all")
    return made.multi(multi=True).include_all(include_all=True).current(everything)


class Annotation(model.AnnotationQuery):
    """Marks from a query; neighbouring points become one region.  The SDK has no field for what a mark says."""

    says: str = ""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": self.says, "step": "10s"}


class _AnnotationBuilder(Builder[model.AnnotationQuery]):
    def __init__(self, made: Annotation) -> None:
        self._made = made

    def build(self) -> model.AnnotationQuery:
        return self._made


def annotation(name: str, expr: str, color: str, says: str) -> Builder[model.AnnotationQuery]:
    """Marks on every panel of a dashboard while an expression has a value."""
    made = Annotation(name=name, datasource=DATASOURCE, expr=expr, icon_color=color)
    made.says = says
    return _AnnotationBuilder(made)


def _panel(panel: Panel, title: str, description: str, width: int, height: int) -> Panel:
    return panel.title(title).description(description).datasource(DATASOURCE).span(width).height(height).no_value(NO_DATA)


def _range(query: Query) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(query.ref).range()


def _now(query: Query) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(query.ref).instant()


def _legend() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().display_mode(common_model.LegendDisplayMode.LIST).show_legend(show_legend=True)
    return legend.placement(common_model.LegendPlacement.BOTTOM)


def _mappings(looks: Mapping[int, ValueStyle]) -> list[model.ValueMapping]:
    options = {
        str(value): model.ValueMappingResult(text=look.text, color=look.color, index=index)
        for index, (value, look) in enumerate(looks.items())
    }
    return [model.ValueMap(options=options)]


def _steps(*steps: tuple[float | None, str]) -> Builder[model.ThresholdsConfig]:
    thresholds = [model.Threshold(value=value, color=color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(thresholds)


def _by(mode: str) -> Builder[model.FieldColor]:
    return dashboard.FieldColor().mode(model.FieldColorModeId(mode))


def _fixed(color: str) -> dict[str, str]:
    return {"mode": "fixed", "fixedColor": color}


def _changes(changes: Mapping[str, object]) -> list[model.DynamicConfigValue]:
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in changes.items()]
