// Draws a dashboard and Prometheus' answers with the components of @grafana/ui: draw({board, answers, …}, "light" or "dark").
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import {
  applyFieldOverrides, createTheme, dateTime, EventBusSrv, FieldType, getDisplayValueAlignmentFactors, getFieldDisplayValues,
  Registry, standardTransformers, standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame,
} from '@grafana/data';
import {
  BigValue, GlobalStyles, GraphNG, PanelChrome, PanelContextProvider, Table, TimeSeries, UPlotConfigBuilder, VizLayout,
  VizLegend, VizRepeater,
} from '@grafana/ui';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';
import arrowDown from './node_modules/@grafana/ui/dist/public/img/icons/unicons/arrow-down.svg';
import arrowUp from './node_modules/@grafana/ui/dist/public/img/icons/unicons/arrow-up.svg';
import info from './node_modules/@grafana/ui/dist/public/img/icons/unicons/info-circle.svg';

const COLUMNS = 24, CELL = 30, GAP = 8, EDGE = 16; // Grafana's grid, in pixels
const timeZone = 'utc';
const asWritten = (text) => text;

// Icons come from the packages instead of a server.
const ICONS = { 'arrow-down': arrowDown, 'arrow-up': arrowUp, 'info-circle': info };
const SVG = { headers: { 'content-type': 'image/svg+xml' } };
window.fetch = async (url) => new Response(ICONS[/([\w-]+)\.svg/.exec(url)?.[1]] ?? '<svg/>', SVG);

// Options that the dashboards set for fields; a Grafana server's panels register more.
const COMMON = ['unit', 'min', 'max', 'decimals', 'noValue', 'color', 'thresholds', 'mappings', 'links'];
const CUSTOM = {
  timeseries: ['lineWidth', 'fillOpacity', 'lineStyle', 'spanNulls', 'showPoints', 'stacking'],
  table: ['cellOptions', 'minWidth'],
};
const option = (name, isCustom) => ({
  id: isCustom ? `custom.${name}` : name, path: name, name, isCustom, process: asWritten, shouldApply: () => true,
});
const registry = (type) =>
  new Registry(() => [...COMMON.map((name) => option(name, false)), ...(CUSTOM[type] ?? []).map((name) => option(name, true))]);
const { mergeTransformer, organizeFieldsTransformer } = standardTransformers;
standardTransformersRegistry.setInit(() =>
  [mergeTransformer, organizeFieldsTransformer].map((each) => ({ id: each.id, name: each.name, transformation: each })));

const parsed = (text) => (text === 'NaN' ? null : Number(text.replace('Inf', 'Infinity')));
const named = (format, labels) => format && format.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? '');

// A query's answer in the form of Grafana's Prometheus data source: one table, or one frame per series.
function frames({ refId, format, legendFormat }, answer, interval, isOnly) {
  if (format === 'table') {
    const labels = [...new Set(answer.flatMap(({ metric }) => Object.keys(metric).sort()))];
    const value = isOnly ? 'Value' : `Value #${refId}`;
    const fields = [
      { name: 'Time', type: FieldType.time, values: answer.map(({ value: [at] }) => at * 1e3) },
      ...labels.map((name) => ({ name, type: FieldType.string, values: answer.map(({ metric }) => metric[name] ?? '') })),
      { name: value, type: FieldType.number, values: answer.map(({ value: [, each] }) => parsed(each)) },
    ];
    return answer.length ? [toDataFrame({ refId, fields })] : [];
  }
  return answer.map(({ metric, value, values = [value] }) => {
    const config = { displayNameFromDS: named(legendFormat, metric) };
    return toDataFrame({ refId, fields: [
      { name: 'Time', type: FieldType.time, config: { interval }, values: values.map(([at]) => at * 1e3) },
      { name: 'Value', type: FieldType.number, labels: metric, config, values: values.map(([, each]) => parsed(each)) },
    ] });
  });
}

async function prepared({ type, title, targets = [], transformations = [], fieldConfig }, content, theme) {
  const found = targets.flatMap((target) =>
    frames(target, content.answers[title][target.refId], content.step_s * 1e3, targets.length === 1));
  const data = await lastValueFrom(transformDataFrame(transformations, found));
  const fieldConfigRegistry = registry(type);
  return applyFieldOverrides({ data, fieldConfig, fieldConfigRegistry, replaceVariables: asWritten, theme, timeZone });
}

function Stat({ panel: { fieldConfig, options }, data, theme, width, height }) {
  const getValues = () => getFieldDisplayValues({
    fieldConfig, data, theme, timeZone, reduceOptions: options.reduceOptions, replaceVariables: asWritten,
  });
  const renderValue = ({ value, ...rest }) => <BigValue value={value.display} theme={theme} {...options} {...rest} />;
  return <VizRepeater {...{ getValues, renderValue, width, height }} source={data} autoGrid orientation={options.orientation}
    getAlignmentFactors={getDisplayValueAlignmentFactors} />;
}

// npm has no state timeline, so these boxes are drawn here, on Grafana's chart, axes and legend.
function Timeline({ panel: { options }, frames, ...rest }) {
  const states = frames.flatMap(({ fields: [, field] }) =>
    field.values.filter((value) => value != null).map((value) => field.display(value)));
  const items = [...new Map(states.map(({ text, color }) => [text, { label: text, color, yAxis: 1 }])).values()];
  const boxes = (field, middle) => (u, index) => {
    const [bottom, top] = [-0.5, 0.5].map((off) => u.valToPos(middle + off * options.rowHeight, 'y', true));
    const lefts = u.data[0].map((at) => Math.round(u.valToPos(at, 'x', true)));
    u.data[index].forEach((value, place) => {
      u.ctx.fillStyle = value == null ? 'transparent' : field.display(value).color;
      u.ctx.fillRect(lefts[place], top, (lefts[place + 1] ?? lefts[place]) - lefts[place], bottom - top);
    });
    return null;
  };
  const prepConfig = ({ fields: [, ...fields] }, _, getTimeRange) => {
    const { theme } = rest, config = new UPlotConfigBuilder(timeZone);
    const middles = fields.map((_, row) => fields.length - row - 0.5);
    const range = () => [getTimeRange().from.valueOf(), getTimeRange().to.valueOf()];
    config.setPrepData(([frame]) => frame.fields.map(({ values }) => values));
    config.addScale({ scaleKey: 'x', isTime: true, orientation: 0, direction: 1, range });
    config.addScale({ scaleKey: 'y', orientation: 1, direction: 1, range: () => [0, fields.length] });
    config.addAxis({ scaleKey: 'x', isTime: true, placement: 'bottom', timeZone, theme });
    config.addAxis({ scaleKey: 'y', placement: 'left', theme, grid: { show: false }, ticks: { show: false },
      splits: () => middles, values: () => fields.map((field) => field.config.displayNameFromDS) });
    fields.forEach((field, row) =>
      config.addSeries({ scaleKey: 'y', theme, show: true, lineWidth: 0, pathBuilder: boxes(field, middles[row]) }));
    return config;
  };
  const renderLegend = () =>
    <VizLayout.Legend placement="bottom"><VizLegend placement="bottom" displayMode="list" items={items} /></VizLayout.Legend>;
  return <GraphNG {...rest} {...{ frames, prepConfig, renderLegend }} propsToDiff={[]}>{() => null}</GraphNG>;
}

function Content({ panel, data, ...rest }) {
  const { type, options, fieldConfig } = panel, { width, height, timeRange } = rest;
  if (type === 'stat') return <Stat {...{ panel, data }} {...rest} />;
  if (!data.some(({ length }) => length))
    return <div style={{ height, display: 'grid', placeItems: 'center' }}>{fieldConfig.defaults.noValue}</div>;
  if (type === 'table')
    return <Table {...{ width, height, timeRange, fieldConfig }} data={data[0]} initialSortBy={options?.sortBy} />;
  if (type === 'state-timeline') return <Timeline panel={panel} frames={data} legend={options.legend} {...rest} />;
  return <TimeSeries frames={data} legend={options.legend} {...rest}>{() => null}</TimeSeries>;
}

function Panel({ panel, data, ...rest }) {
  const { title, description, type, gridPos: { x, y, w, h } } = panel, column = (window.innerWidth - 2 * EDGE + GAP) / COLUMNS;
  const size = { width: w * column - GAP, height: h * (CELL + GAP) - GAP };
  return <div style={{ position: 'absolute', left: EDGE + x * column, top: GAP + y * (CELL + GAP), ...size }}>
    {type === 'row' ? <div style={{ ...rest.theme.typography.h5, padding: 4 }}>{title}</div>
      : <PanelChrome {...{ title, description }} {...size}>
          {(width, height) => <Content {...{ panel, data, width, height }} {...rest} />}
        </PanelChrome>}
  </div>;
}

const root = createRoot(document.getElementById('root'));
window.draw = async (content, mode) => {
  const theme = createTheme({ colors: { mode } }), { panels, uid } = content.board;
  const [from, to] = [content.begin_s, content.end_s].map((at_s) => dateTime(at_s * 1e3));
  const shown = panels.filter(({ gridPos }) => gridPos.y * (CELL + GAP) < window.innerHeight);
  const data = await Promise.all(shown.map((panel) => prepared(panel, content, theme)));
  const common = { theme, timeZone, timeRange: { from, to, raw: { from, to } } };
  flushSync(() => root.render(
    <ThemeContext.Provider value={theme} key={uid + mode}>
      <GlobalStyles />
      <PanelContextProvider value={{ eventBus: new EventBusSrv() }}>
        {shown.map((panel, place) => <Panel key={panel.id} panel={panel} data={data[place]} {...common} />)}
      </PanelContextProvider>
    </ThemeContext.Provider>));
  return shown.filter(({ description }) => description).length; // icons, which appear later
};
