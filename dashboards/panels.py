"""The panel types of the dashboards, with one style, one kind of join and one text for missing data.

Missing data never looks like health: without a scrape every panel shows ``NO_DATA``, and "idle" is a separate value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from string import ascii_uppercase
from typing import Protocol, Self, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.column_widths import label_px, text_px

NO_DATA = "NO DATA"
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, BLUE, YELLOW, ORANGE, RED, PURPLE, GREY = "green", "blue", "yellow", "orange", "red", "purple", "#808080"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression, and the legend format that names the resulting series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class ValueStyle:
    """The style of one value of an enumeration."""

    text: str
    color: str


class _Common(Protocol):
    """The methods common to all panel builders.  The SDK generates each builder separately, without a common type."""

    def datasource(self, datasource: model.DataSourceRef) -> Self: ...
    def description(self, description: str) -> Self: ...
    def height(self, h: int) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...
    def span(self, w: int) -> Self: ...
    def title(self, title: str) -> Self: ...


Panel = TypeVar("Panel", bound=_Common)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStyle:
    """The style of a time series panel.  With ``has_limits``, Grafana draws series named ``limit…`` as dashed red lines."""

    least: float | None = 0
    most: float | None = None
    has_limits: bool = False
    is_stacked: bool = False
    colors: Mapping[str, str] = field(default_factory=dict)


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    size: tuple[int, int] = (24, 8),
    style: LineStyle = LineStyle(),
) -> timeseries.Panel:
    """Build a time series panel."""
    panel = _panel(timeseries.Panel(), title, description, size).unit(unit).show_points(common_model.VisibilityMode.AUTO)
    # Gaps stay visible: with a joined line, a stopped exporter would look like an idle GPU.
    panel = panel.span_nulls(False).line_width(1.5).fill_opacity(30 if style.is_stacked else 5)  # noqa: FBT003 - the SDK's own signature
    panel = panel.color_scheme(_by("palette-classic")).legend(_legend())
    panel = panel.tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI))
    if style.is_stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))
    if style.least is not None:
        panel = panel.min(style.least)
    if style.most is not None:
        panel = panel.max(style.most)
    if style.has_limits:
        dashes = {"fill": "dash", "dash": [8, 6]}
        changes = {"custom.lineStyle": dashes, "custom.fillOpacity": 0, "custom.lineWidth": 1, "color": _fixed(RED)}
        panel = panel.override_by_regexp("limit.*", _changes(changes))
    for name, color in style.colors.items():
        panel = panel.override_by_name(name, _changes({"color": _fixed(color)}))
    for ref, query in zip(ascii_uppercase, queries, strict=False):
        panel = panel.with_target(_range(query, ref))
    return panel


def timeline(
    title: str, description: str, looks: Mapping[int, ValueStyle], query: Query, *, height: int = 8
) -> statetimeline.Panel:
    """Build a state timeline with one row per series; a gap is a time without scrapes."""
    panel = (
        _panel(statetimeline.Panel(), title, description, (24, height))
        .mappings(_mappings(looks))
        .merge_values(merge_values=True)
    )
    panel = panel.show_value(common_model.VisibilityMode.NEVER).row_height(0.85).legend(_legend())
    panel = panel.thresholds(_steps((None, GREY))).color_scheme(_by("thresholds"))
    return panel.with_target(_range(query))


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure, or a column of a table: the query, the heading, the unit and the style of the values.

    A column without a heading adds only labels: the table hides the values.
    """

    query: Query
    heading: str = ""
    unit: str = "none"
    looks: Mapping[int, ValueStyle] | None = None
    steps: tuple[tuple[float | None, str], ...] = ()
    decimals: int | None = None


def number(cell: Cell, description: str, *, width: int = 4) -> stat.Panel:
    """Build a panel of one large figure, from an instant query: the last point of a range query may be old."""
    steps = cell.steps or ((None, BLUE),)
    panel = _panel(stat.Panel(), cell.heading, description, (width, 4)).unit(cell.unit).thresholds(_steps(*steps))
    panel = panel.color_mode(common_model.BigValueColorMode.BACKGROUND).color_scheme(_by("thresholds"))
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["last"]))
    panel = panel.graph_mode(common_model.BigValueGraphMode.NONE)
    if cell.looks:
        panel = panel.mappings(_mappings(cell.looks))
    if cell.decimals is not None:
        panel = panel.decimals(cell.decimals)
    return panel.with_target(_now(cell.query))


def grid(
    title: str,
    description: str,
    cells: Sequence[Cell],
    *,
    labels: Mapping[str, str],
    size: tuple[int, int] = (24, 10),
    links: Mapping[str, str] | None = None,
    highest_first: str = "",
) -> table.Panel:
    """Build a table with one row per set of label values and one column per cell, joined on the labels.

    ``labels`` maps each label to a heading.  ``links`` maps a heading to a URL.  ``highest_first`` names the heading to sort by.
    """
    panel = _panel(table.Panel(), title, description, size)
    for ref, cell in zip(ascii_uppercase, cells, strict=False):
        panel = panel.with_target(_now(cell.query, ref).format(PromQueryFormat.TABLE))
    one = len(cells) == 1
    values = {("Value" if one else f"Value #{ref}"): cell.heading for ref, cell in zip(ascii_uppercase, cells, strict=False)}
    organize = {
        "excludeByName": {"Time": True} | {name: True for name, heading in values.items() if not heading},
        "indexByName": {name: index for index, name in enumerate((*labels, *values))},
        "renameByName": {name: heading for name, heading in values.items() if heading} | dict(labels),
    }
    merge = model.DataTransformerConfig(id_val="merge", options={})
    panel = panel.transformations([merge, model.DataTransformerConfig(id_val="organize", options=organize)])
    for cell in (cell for cell in cells if cell.heading):
        arrow = " ↓" if cell.heading == highest_first else ""
        texts = (cell.heading + arrow, *(look.text for look in (cell.looks or {}).values()))
        changes: dict[str, object] = {"unit": cell.unit, "custom.minWidth": text_px(*texts)}
        if cell.decimals is not None:
            changes["decimals"] = cell.decimals
        if cell.looks:
            changes |= {"mappings": _mappings(cell.looks), "custom.cellOptions": {"type": "color-background"}}
        if cell.steps:
            changes |= {"thresholds": _steps(*cell.steps).build(), "custom.cellOptions": {"type": "color-text"}}
        panel = panel.override_by_name(cell.heading, _changes(changes))
    for label, heading in labels.items():
        panel = panel.override_by_name(heading, _changes({"custom.minWidth": label_px(label)}))
    if highest_first:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(highest_first).desc(desc=True)])
    for heading, url in (links or {}).items():
        panel = panel.override_by_name(heading, _changes({"links": [{"title": "Open", "url": url}]}))
    return panel


def row(title: str) -> dashboard.Row:
    """Build a row heading for the panels that follow."""
    return dashboard.Row(title)


Part: TypeAlias = dashboard.Row | timeseries.Panel | statetimeline.Panel | stat.Panel | table.Panel


def fill(
    made: dashboard.Dashboard, annotations: Iterable[Builder[model.AnnotationQuery]], *sections: Iterable[Part]
) -> dashboard.Dashboard:
    """Add annotations and sections of rows and panels to a dashboard."""
    for each in annotations:
        made = made.annotation(each)
    for part in chain.from_iterable(sections):
        made = made.with_row(part) if isinstance(part, dashboard.Row) else made.with_panel(part)
    return made


def board(uid: str, title: str, description: str, *, since: str = "now-1h") -> dashboard.Dashboard:
    """Build an empty dashboard with the common variables: data source, job and hosts."""
    made = dashboard.Dashboard(title).uid(uid).description(description).tags(["gpuwatch"]).time(since, "now").refresh("30s")
    made = made.timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR).readonly()
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    made = made.with_variable(variable("job", "Job", "label_values(gpuwatch_build_info, job)"))
    # "All" jobs expands to the jobs found, because "up" has every job of Prometheus.  "All" hosts also matches unreachable hosts.
    hosts = variable("instance", "Host", 'label_values(gpuwatch_build_info{job=~"$job"}, instance)')
    made = made.with_variable(hosts.all_value(".*"))
    return made.link(
        dashboard.DashboardLink("gpuwatch")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags(["gpuwatch"])
        .as_dropdown(as_dropdown=False)
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )


def variable(name: str, label: str, query: str, *, many: bool = True) -> dashboard.QueryVariable:
    """Build a variable with values from Prometheus.  With ``many``, a user may select several; the default is all."""
    made = dashboard.QueryVariable(name).label(label).datasource(DATASOURCE).sort(model.VariableSort.NATURAL_ASC)
    made = made.query({"query": query, "refId": name}).refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    if not many:
        return made
    everything = model.VariableOption(selected=True, text="All", value="$__all")
    return made.multi(multi=True).include_all(include_all=True).current(everything)


class Annotation(model.AnnotationQuery):
    """Annotations from a query; Grafana joins adjacent points to one region.  The SDK has no field for ``titleFormat``."""

    says: str = ""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": self.says, "step": "10s"}


class _AnnotationBuilder(Builder[model.AnnotationQuery]):
    def __init__(self, made: Annotation) -> None:
        self._made = made

    def build(self) -> model.AnnotationQuery:
        return self._made


def annotation(name: str, expr: str, color: str, says: str) -> Builder[model.AnnotationQuery]:
    """Build an annotation that marks every panel of a dashboard while ``expr`` has a value."""
    made = Annotation(name=name, datasource=DATASOURCE, expr=expr, icon_color=color)
    made.says = says
    return _AnnotationBuilder(made)


def _panel(panel: Panel, title: str, description: str, size: tuple[int, int]) -> Panel:
    width, height = size
    return panel.title(title).description(description).datasource(DATASOURCE).span(width).height(height).no_value(NO_DATA)


def _range(query: Query, ref: str = "A") -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref).range()


def _now(query: Query, ref: str = "A") -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref).instant()


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
