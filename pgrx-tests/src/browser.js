// Collects the findings about the page in the frame, one per line: a name, a tab, a value.
const lines = [];
const say = (name, value) => lines.push(name + '\t' + String(value).replace(/[\n\t]/g, ' '));
const numbers = (color) => (color.match(/[\d.]+/g) || []).map(Number);
const over = (front, back) => {
  const alpha = front[3] ?? 1;
  return [0, 1, 2].map((i) => front[i] * alpha + back[i] * (1 - alpha));
};
const luminance = (color) => {
  const [r, g, b] = color.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};

function look() {
  const frame = document.getElementById('page');
  const page = frame.contentDocument, view = frame.contentWindow;
  const all = [...page.querySelectorAll('*')];
  const style = (element) => view.getComputedStyle(element);
  page.querySelectorAll('details').forEach((details) => { details.open = true; });
  const width = page.documentElement.clientWidth;
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(numbers(style(e).backgroundColor));
    return layers.reverse().reduce((below, layer) => layer.length ? over(layer, below) : below, [255, 255, 255]);
  };
  say('ground', ground(page.body).map(Math.round).join(' '));
  say('width', width);
  say('language', page.documentElement.lang);
  say('title', page.title);
  if (page.documentElement.scrollWidth > width) say('scrolls', page.documentElement.scrollWidth);
  new Set(all.map((e) => e.localName)).forEach((name) => say('element', name));
  for (const e of all) {
    for (const a of e.attributes) {
      if (/^on/i.test(a.name) || /^(src|srcset|action|data|xlink:href)$/i.test(a.name)) say('loads', e.localName + ' ' + a.name);
      if (a.name === 'href' && !page.getElementById(a.value.slice(1))) say('loads', 'href ' + a.value);
    }
    const box = e.getBoundingClientRect(), is = style(e);
    const text = [...e.childNodes].filter((n) => n.nodeType === 3 && n.data.trim()).map((n) => n.data.trim()).join(' ');
    const shown = box.width > 1 && box.height > 1 && e.closest('body') && !e.closest('caption');
    if (!text || !e.closest('body') || e.closest('caption')) continue;
    if (!shown) { say('hidden', text); continue; }
    if (box.left < -1 || box.right > width + 1) { if (!e.closest('.wide')) say('outside', text); }
    if (is.display !== 'inline' && is.overflowX !== 'visible' && !e.matches('.wide') && e.scrollWidth > e.clientWidth + 1) say('cut', text);
    if (is.textOverflow === 'ellipsis') say('cut', text);
    for (let p = e.parentElement; p; p = p.parentElement) {
      if (style(p).overflowX === 'hidden' && box.right > p.getBoundingClientRect().right + 1) say('cut', text);
    }
    const color = over(numbers(is.color), ground(e)), behind = ground(e);
    const [light, dark] = [luminance(color), luminance(behind)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) say('pale', ratio.toFixed(2) + ' ' + text);
    if (parseFloat(is.fontSize) < 12) say('small', text);
  }
  page.querySelectorAll('section').forEach((s) => say('section', s.id + ' ' + (s.getBoundingClientRect().height > 40 && !!s.querySelector('h2'))));
  page.querySelectorAll('bdi').forEach((b) => say('name', b.textContent));
  page.querySelectorAll('table').forEach((t) => say('table', !!t.caption && t.caption.textContent.length > 0 && !!t.closest('.wide')));
  page.querySelectorAll('svg').forEach((s) => say('drawing', s.getAttribute('aria-label')));
  page.querySelectorAll('.wide').forEach((w) => { if (w.getBoundingClientRect().width > width) say('outside', 'a table'); });
  say('headings', page.querySelectorAll('h1').length);
  say('hacked', view.hacked || window.hacked || 'no');
  say('text', page.body.innerText);
}

window.addEventListener('load', () => {
  try { look(); say('done', 'yes'); } catch (error) { say('failed', error.stack); say('done', 'no'); }
  document.getElementById('found').textContent = lines.join('\n');
});
