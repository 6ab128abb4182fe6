// Reads a Chrome trace with Catapult's importer, which chrome://tracing uses, outside of a browser.
// Usage: node catapult.js trace_viewer_full.html trace.json; the page is part of the PyPI package torch_tb_profiler.
// Prints what the importer found as JSON.
const fs = require('fs');
const vm = require('vm');

// As much of a browser as the importer's parts ask for; the parts that draw fail to load and are not needed.
global.window = global.self = global;
const element = () => ({style: {}, classList: {add() {}}, setAttribute() {}, appendChild() {}});
global.document = {createElement: element, addEventListener() {}, querySelector: () => null, head: element(), body: element(),
                   documentElement: {}};
global.addEventListener = () => {};
global.requestAnimationFrame = () => 0;
global.HTMLElement = global.HTMLUnknownElement = global.Element = class {};
global.location = {search: '', hash: '', href: ''};
global.navigator = {userAgent: 'node', platform: ''};
global.oboe = {drop: undefined};

const [page, file] = process.argv.slice(2);
for (const [, script] of fs.readFileSync(page, 'utf8').matchAll(/<script[^>]*>([\s\S]*?)<\/script>/g)) {
  for (const part of script.split(/(?='use strict';)/)) {
    try {
      vm.runInThisContext(part);
    } catch (e) {
    }
  }
}

const model = new tr.Model();
new tr.importer.Import(model, new tr.importer.ImportOptions()).importTraces([JSON.parse(fs.readFileSync(file, 'utf8'))]);
const threads = model.getAllThreads();
console.log(JSON.stringify({
  warnings: model.importWarnings.map(w => `${w.type}: ${w.message}`),
  tracks: threads.map(t => t.name),
  slices: threads.reduce((n, t) => n + t.sliceGroup.slices.filter(s => !s.isInstant && s.duration >= 0).length, 0),
  arrows: model.flowEvents.length,
  counters: model.getAllCounters().map(c => c.series.map(s => s.name)),
}));
