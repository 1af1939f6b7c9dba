"""The style of a run's page, light or dark as the reader's system is."""

STYLE = """
:root { color-scheme: light dark; --ink: #22272e; --faint: #5d6673; --line: #d7dce2; --paper: #fff; --panel: #f4f6f8;
  --c0: #1b6ca8; --c1: #d9822b; --c2: #3a9268; --c3: #b5476b; --low: 217, 130, 43; --high: 27, 108, 168; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7ec; --faint: #9aa5b1; --line: #39414b; --paper: #16191d;
  --panel: #20252b; --c0: #5aa9e0; --c1: #e8a45c; --c2: #62bf92; --c3: #dd7f9f; --low: 224, 139, 54; --high: 66, 150, 214; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 82rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; line-height: 1.2; }
h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p { margin: .3rem 0; color: var(--faint); max-width: 75ch; }
code, .text { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .9em; }
small { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .9rem .15rem 0; text-align: right; white-space: nowrap; }
thead th, tbody tr + tr > * { border-top: 1px solid var(--line); }
thead th { border: 0; color: var(--faint); font-weight: 600; }
tbody th { text-align: left; font-weight: 400; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: .8rem 1.2rem; }
.chart { margin: 0; }
.chart figcaption { font-size: .85rem; font-weight: 600; display: flex; justify-content: space-between; gap: 1rem; }
.chart output { font-weight: 400; color: var(--faint); font-variant-numeric: tabular-nums; }
.chart svg { width: 100%; height: auto; display: block; }
.chart text { fill: var(--faint); font-size: 10px; font-family: inherit; }
.chart polyline { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
.grid { stroke: var(--line); stroke-width: 1; }
polyline.c0 { stroke: var(--c0); } circle.c0 { fill: var(--c0); } i.c0 { background: var(--c0); }
polyline.c1 { stroke: var(--c1); } circle.c1 { fill: var(--c1); } i.c1 { background: var(--c1); }
polyline.c2 { stroke: var(--c2); } circle.c2 { fill: var(--c2); } i.c2 { background: var(--c2); }
polyline.c3 { stroke: var(--c3); } circle.c3 { fill: var(--c3); } i.c3 { background: var(--c3); }
.legend span { margin-right: 1.2rem; }
.legend i { display: inline-block; width: 1rem; height: .25rem; margin-right: .4rem; vertical-align: middle; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 0 1.5rem; margin: .5rem 0; }
dl div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--line); }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; text-align: right; }
.changed dt, .changed dd { font-weight: 700; color: var(--ink); }
summary { cursor: pointer; margin: .5rem 0; }
.filters { display: flex; flex-wrap: wrap; gap: .5rem .9rem; align-items: end; margin: .5rem 0; }
.filters label { display: flex; flex-direction: column; font-size: .78rem; color: var(--faint); }
.filters input, .filters select, button { font: inherit; font-size: .9rem; color: var(--ink); background: var(--paper);
  border: 1px solid var(--line); border-radius: 4px; padding: .2rem .4rem; }
.filters input, .filters select, .filters button { height: 2.1rem; }
.filters input[type=number] { width: 6rem; } .filters input[type=search] { width: 14rem; }
button { cursor: pointer; }
button:focus-visible, input:focus-visible, select:focus-visible, .text:focus-visible { outline: 2px solid var(--c0);
  outline-offset: 1px; }
.panes { display: grid; grid-template-columns: minmax(16rem, 22rem) minmax(0, 1fr); gap: 1.2rem; align-items: start; }
@media (max-width: 800px) { .panes { grid-template-columns: minmax(0, 1fr); } }
.list { max-height: 44rem; overflow-y: auto; border: 1px solid var(--line); border-radius: 6px; }
.list ol { list-style: none; margin: 0; padding: 0; }
.list li > button { display: block; width: 100%; text-align: left; border: 0; border-bottom: 1px solid var(--line);
  border-radius: 0; padding: .4rem .6rem; background: none; }
.list li > button[aria-current=true] { background: var(--panel); box-shadow: inset 3px 0 var(--c0); }
.list .first { display: flex; justify-content: space-between; gap: .5rem; font-variant-numeric: tabular-nums; }
.list .last { display: block; color: var(--faint); font-size: .85rem; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.list > button { width: 100%; border: 0; color: var(--c0); padding: .5rem; background: none; }
.facts { display: flex; flex-wrap: wrap; gap: .1rem 1.3rem; margin: 0 0 .5rem; }
.facts b { font-weight: 600; }
.facts span { color: var(--faint); } .facts span b { color: var(--ink); }
.error { color: var(--c3); }
.siblings { display: flex; flex-wrap: wrap; gap: .3rem; align-items: center; margin: .3rem 0 .6rem; color: var(--faint); }
.siblings button { padding: .05rem .45rem; font-variant-numeric: tabular-nums; }
.siblings button[aria-current=true] { border-color: var(--c0); box-shadow: 0 0 0 1px var(--c0); }
.token { position: sticky; top: 0; background: var(--paper); border-bottom: 1px solid var(--line); padding: .3rem 0;
  min-height: 2.1rem; display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: center; font-size: .9rem;
  font-variant-numeric: tabular-nums; z-index: 1; }
.token .scale { color: var(--faint); }
.scale i { display: inline-block; width: 1.4rem; height: .9rem; margin: 0 .25rem; vertical-align: -.15rem;
  border: 1px solid var(--line); }
.message { margin: .7rem 0; padding-left: .8rem; border-left: 3px solid var(--line); }
.message.assistant { border-left-color: var(--c0); }
.message h3 { margin: 0 0 .1rem; font-size: .78rem; font-weight: 600; color: var(--faint); }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; color: var(--ink); max-width: none; }
.text [data-token] { border-radius: 2px; }
.text [data-token].now { outline: 2px solid var(--c0); }
.text .end::after { content: "\\21b5"; color: var(--faint); }
"""
