// The page of the service: what somebody likes, the lists of one or two models, and how these were
// trained. Text from the service becomes text of elements, never markup.

const TOKEN = "foretaste token";

/** Items that were clicked, by their id as text; and the id of a known user, or null. */
const person = { liked: new Map(), userId: null };

const byId = (id) => document.getElementById(id);
const name = (item) => item.title ?? String(item.item_id);
const counted = (number, noun) =>
  `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** An element with properties, among them `aria` for its aria- attributes, and children. */
function element(tag, { aria = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  for (const [key, value] of Object.entries(aria)) made.setAttribute(`aria-${key}`, value);
  made.append(...children);
  return made;
}

/** Replace what a container has; a button that had the focus hands it to the one in its place. */
function fill(container, children, otherwise = container) {
  const place = [...container.querySelectorAll("button")].indexOf(document.activeElement);
  container.replaceChildren(...children);
  if (place < 0) return;
  const buttons = container.querySelectorAll("button");
  (buttons[Math.min(place, buttons.length - 1)] ?? otherwise).focus();
}

/* Asking the service. */

/** A value of JSON; an integer that JavaScript cannot hold as text, an id that the service takes. */
function exact(key, value, context) {
  if (!Number.isInteger(value) || Number.isSafeInteger(value)) return value;
  if (context) return context.source;
  throw new Error("This browser rounds long numbers, and the ids here are such: use a newer one.");
}

/** The JSON that a path answers; the token is asked for where it is needed. */
async function ask(path, { body, signal } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  const response = await fetch(path, {
    method: body ? "POST" : "GET",
    headers,
    body: body && JSON.stringify(body),
    signal,
  }).catch(() => {
    throw new Error("The service cannot be reached.");
  });
  if (!response.headers.get("content-type")?.startsWith("application/json")) {
    throw new Error(`The service did not answer: ${response.status} ${response.statusText}`);
  }
  const content = JSON.parse(await response.text(), exact);
  if (response.ok) return content;
  if (response.status === 401) {
    // Another request may have asked meanwhile.
    if (sessionStorage.getItem(TOKEN) === token) await askForToken(token !== null);
  } else throw new Error(content.error.message);
  signal?.throwIfAborted();
  return ask(path, { body, signal });
}

/** As `ask`, with the parameters of a query. */
const find = (path, parameters, signal) =>
  ask(`${path}?${new URLSearchParams(parameters)}`, { signal });

let tokenGiven = null;

/** Resolves once a token was given; one question for all requests that wait for it. */
function askForToken(wasRefused) {
  tokenGiven ??= new Promise((resolve, reject) => {
    byId("token-refused").hidden = !wasRefused;
    byId("token-form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN, byId("token").value.trim());
      byId("token-dialog").close();
      resolve();
    };
    byId("token-dialog").oncancel = () =>
      reject(new Error("The service needs a token. Load this page again to give it."));
    byId("token").value = "";
    byId("token-dialog").showModal();
  }).finally(() => {
    tokenGiven = null;
  });
  return tokenGiven;
}

/** Tell those who listen to the page, not those who see it. */
function say(text) {
  byId("said").textContent = text;
}

/** Messages of what failed last, by what it was. */
const troubles = new Map();

/** A function that begins anew with each call, as the one before is given up; shows what fails. */
function latest(work) {
  let running = new AbortController();
  return async () => {
    running.abort();
    const { signal } = (running = new AbortController());
    try {
      await work(signal);
      troubles.delete(work);
    } catch (error) {
      if (signal.aborted) return;
      troubles.set(work, error.message);
    }
    byId("trouble").textContent = [...new Set(troubles.values())].join(" ");
    byId("trouble").hidden = !troubles.size;
  };
}

/** The names of the one or two models that are chosen. */
const chosen = () => [byId("model").value, byId("beside").value].filter(Boolean);

/* What somebody likes. */

function toggle(item) {
  const key = String(item.item_id);
  if (!person.liked.delete(key)) person.liked.set(key, item);
  showLiked();
  recommend();
}

function showLiked() {
  const chips = [...person.liked.values()].map((item) => {
    const chip = element("button", { type: "button" }, name(item));
    chip.setAttribute("aria-label", `Remove ${name(item)}`);
    chip.onclick = () => toggle(item);
    return element("li", {}, chip);
  });
  fill(byId("liked"), chips, byId("search"));
  byId("none-liked").hidden = chips.length > 0;
  const instead = person.userId === null ? "most people have" : "suits this user's history";
  byId("none-liked").textContent = `None yet: the lists have what ${instead}.`;
  for (const button of byId("found").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", person.liked.has(button.value));
  }
}

const search = latest(async (signal) => {
  const query = byId("search").value.trim();
  const { items } = await find("v1/items", { query, model: byId("model").value }, signal);
  const choices = items.map((item) => {
    const button = element("button", { type: "button", value: item.item_id }, name(item));
    button.onclick = () => toggle(item);
    return element("li", {}, button);
  });
  fill(byId("found"), choices, byId("search"));
  byId("none-found").hidden = items.length > 0;
  if (query) say(`${counted(items.length, "item")} found`);
  showLiked();
});

const suggestUsers = latest(async (signal) => {
  const query = byId("user").value.trim();
  const { users } = await find("v1/users", { query, model: byId("model").value }, signal);
  byId("users").replaceChildren(
    ...users.map((user) =>
      element("option", { value: user.user_id }, counted(user.num_items, "item")),
    ),
  );
});

const showHistory = latest(async (signal) => {
  byId("history").hidden = person.userId === null;
  showLiked();
  if (person.userId === null) return;
  const user_id = person.userId;
  const found = await find("v1/history", { user_id, model: byId("model").value }, signal);
  const { known, items, num_items } = found;
  const shown = items.length < num_items ? `, ${items.length} of them here` : "";
  byId("history-heading").textContent = `User ${found.user_id}`;
  const has = known ? "Has" : "Not known to this run, has";
  byId("history-note").textContent = `${has} ${counted(num_items, "item")}${shown}.`;
  byId("history-items").replaceChildren(...items.map((item) => element("li", {}, name(item))));
  byId("history-items").hidden = !items.length;
});

function lookUp(userId) {
  person.userId = userId;
  showHistory();
  recommend();
}

/* The lists. */

const recommend = latest(async (signal) => {
  const user = { history: [...person.liked.values()].map((item) => item.item_id) };
  if (person.userId !== null) user.user_id = person.userId;
  const found = await Promise.all(
    chosen().map((model) =>
      ask("v1/recommend", { body: { model, users: [user], reasons: true }, signal }),
    ),
  );
  const ids = found.map(({ answers }) => answers[0].items.map((item) => String(item.item_id)));
  const shared = new Set(ids[0].filter((id) => ids.length > 1 && ids[1].includes(id)));
  byId("shared").hidden = ids.length < 2;
  byId("shared").textContent = `${shared.size} of ${counted(ids[0].length, "item")} in both lists`;
  const articles = found.map((answer, number) => listOf(answer, number, shared));
  fill(byId("lists"), articles, byId("search"));
  say(found.map(({ model, answers }) => spoken(model, answers[0])).join(" "));
});

function spoken(model, { items }) {
  const first = items.length ? `, first ${name(items[0])}` : "";
  return `${counted(items.length, "recommendation")} of ${model}${first}.`;
}

/** The list of one model; items in `shared` are marked. */
function listOf({ model, answers: [{ items, reason }] }, number, shared) {
  const heading = element("h2", { id: `list-${number}` }, model);
  const article = element("article", { aria: { labelledby: heading.id } }, heading);
  if (reason) article.append(element("p", { className: "note" }, sentence(reason)));
  const rows = items.map((item) => {
    const title = element("span", { className: "title" }, name(item));
    const about = element("div", {}, title);
    if (shared.has(String(item.item_id))) {
      about.append(" ", element("span", { className: "both" }, "in both"));
    }
    if (item.because?.length) {
      const nearest = item.because.filter(({ score }) => 2 * score >= item.because[0].score);
      about.append(element("small", {}, `Because of ${nearest.map(name).join(" · ")}`));
    }
    const aria = { label: `Like ${name(item)}` };
    const like = element("button", { type: "button", className: "plus", aria });
    like.onclick = () => toggle(item);
    return element("li", {}, about, like);
  });
  article.append(element("ol", { className: "list" }, ...rows));
  return article;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/* The training. */

const showTraining = latest(async (signal) => {
  if (byId("training").hidden || !chosen().length) return;
  const runs = await Promise.all(chosen().map((model) => find("v1/run", { model }, signal)));
  const lengths = new Set(
    runs.flatMap((run) => run.metrics?.metrics ?? []).map((metric) => metric.name.split("@")[1]),
  );
  byId("measured").hidden = lengths.size === 0;
  byId("none-measured").hidden = lengths.size > 0;
  const selected = byId("k").value || "10";
  const options = [...lengths].map((k) => new Option(k, k, k === selected, k === selected));
  byId("k").replaceChildren(...options);
  byId("k").onchange = () => showMetrics(runs);
  showMetrics(runs);
  byId("runs").replaceChildren(...runs.map(articleOf));
});

/** The metrics at the chosen k, a row each, with a column for each run. */
function showMetrics(runs) {
  const ending = `@${byId("k").value}`;
  const columns = runs.map(
    (run) => new Map((run.metrics?.metrics ?? []).map((metric) => [metric.name, metric])),
  );
  const names = new Set(columns.flatMap((metrics) => [...metrics.keys()]));
  const rows = [...names]
    .filter((metric) => metric.endsWith(ending))
    .map((metric) => [metric, ...columns.map((metrics) => numberCell(metrics.get(metric)))]);
  const heads = runs.map((run) => element("span", {}, run.model, element("small", {}, about(run))));
  const table = tableOf(["Metric, with its 95 % interval", ...heads], rows, "Metrics");
  const isOne = new Set(runs.map((run) => `${run.dataset.digest} ${about(run)}`)).size === 1;
  const remark = isOne ? "" : "Of different held-out data: these numbers do not compare.";
  byId("metrics").replaceChildren(element("p", { className: "note" }, remark), table);
}

/** Words for the held-out data that the metrics of a run are of. */
function about({ metrics }) {
  if (!metrics) return "not measured";
  const { split, protocol, candidates, num_users } = metrics;
  return `${split} part, ${protocol}, candidates ${candidates}, ${counted(num_users, "user")}`;
}

function numberCell(metric) {
  if (!metric) return "–";
  const { value, low, high } = metric;
  const interval = low === null ? "" : `${low.toFixed(4)}–${high.toFixed(4)}`;
  return element("span", {}, value.toFixed(4), element("small", {}, interval));
}

function tableOf(heads, rows, label) {
  const head = element("tr", {}, ...heads.map((cell) => element("th", { scope: "col" }, cell)));
  const body = rows.map(([first, ...others]) => {
    const cells = others.map((cell) => element("td", {}, cell));
    return element("tr", {}, element("th", { scope: "row" }, first), ...cells);
  });
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  const region = { className: "scroll", tabIndex: 0, role: "region", aria: { label } };
  return element("div", region, table);
}

/** What is to say about one run: facts, curves, the numbers of each epoch, settings. */
function articleOf(run, number) {
  const heading = element("h2", { id: `run-${number}` }, run.model);
  const measured = run.summary?.select_by ?? "";
  const split = run.evaluations.find((one) => one.epoch !== null)?.split;
  const points = run.evaluations.flatMap(({ epoch, split: of, metrics }) => {
    const found = metrics.find((metric) => metric.name === measured);
    return found && epoch !== null && of === split ? [{ x: epoch, y: found.value, ...found }] : [];
  });
  const losses = run.epochs
    .filter(({ loss }) => loss !== null)
    .map(({ epoch, loss }) => ({ x: epoch, y: loss }));
  const best = run.summary?.best_epoch;
  const charts = [
    chart(`${measured} on the ${split} part, by epoch`, points, best),
    chart("Training loss, by epoch", losses, best),
  ];
  return element(
    "article",
    { aria: { labelledby: heading.id } },
    heading,
    factsOf(run),
    ...charts.filter(Boolean),
    ...(run.epochs.length ? [epochsOf(run, measured, points)] : []),
    details("Settings", definitions({ ...run.model_settings, ...run.training_settings })),
  );
}

function factsOf({ kind, created, dataset, hardware, versions, summary }) {
  const facts = {
    Model: kind,
    Dataset: `${dataset.name}, ${dataset.protocol}`,
    Users: dataset.num_train_users.toLocaleString("en"),
    Items: dataset.num_items.toLocaleString("en"),
    Started: new Date(created).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" }),
    Machine: pairs(hardware),
    Versions: pairs(versions),
  };
  if (!summary) return definitions({ ...facts, Ended: "not yet" });
  const { num_epochs, best_epoch } = summary;
  const rate = (value, noun) => (value ? `${round(value)} ${noun} a second` : "–");
  return definitions({
    ...facts,
    Ended: summary.stopped_because,
    Epochs: best_epoch === null ? String(num_epochs) : `${num_epochs}, the best ${best_epoch}`,
    "Training took": `${round(summary.train_s)} s`,
    Throughput: rate(summary.samples_per_s, "samples"),
    Evaluation: rate(summary.evaluated_users_per_s, "users"),
    Memory: summary.memory_mib === null ? "–" : `${round(summary.memory_mib)} MiB`,
  });
}

const round = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
const pairs = (values) =>
  Object.entries(values)
    .map(([key, value]) => `${key} ${value}`)
    .join(", ");

function definitions(values) {
  const rows = Object.entries(values).flatMap(([key, value]) => [
    element("dt", {}, key),
    element("dd", {}, typeof value === "string" ? value : JSON.stringify(value)),
  ]);
  return element("dl", {}, ...rows);
}

const details = (title, content) => element("details", {}, element("summary", {}, title), content);

function epochsOf(run, measured, points) {
  const values = new Map(points.map(({ x, y }) => [x, y]));
  const rows = run.epochs.map(({ epoch, loss, train_s }) => [
    String(epoch),
    loss === null ? "–" : round(loss),
    values.get(epoch)?.toFixed(4) ?? "",
    round(train_s),
  ]);
  const table = tableOf(["Epoch", "Loss", measured, "Seconds"], rows, "Epochs");
  return details("Numbers by epoch", table);
}

/* Charts. */

const WIDTH = 400;
const HEIGHT = 210;
const LEFT = 52;
const RIGHT = 388;
const TOP = 12;
const BOTTOM = 180;

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Round numbers between two values: three to seven of them, a step apart. */
function ticks(low, high) {
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) found.push(n * step);
  return found;
}

/** The scale from values to places, both from a first to a last. */
const scale = ([first, last], [start, end]) => (value) =>
  start + ((value - first) / (last - first || 1)) * (end - start);

/** A figure of a curve, with its interval where points have one; null where there is no curve. */
function chart(title, points, best) {
  if (points.length < 2) return null;
  const [first, last] = [points[0], points.at(-1)];
  const low = Math.min(...points.map((point) => point.low ?? point.y));
  const high = Math.max(...points.map((point) => point.high ?? point.y));
  const x = scale([first.x, last.x], [LEFT, RIGHT]);
  const y = scale([low, high], [BOTTOM, TOP]);
  const path = (places) =>
    places.map(([across, up]) => `${x(across).toFixed(1)},${y(up).toFixed(1)}`).join(" ");
  const banded = points.filter((point) => typeof point.low === "number");
  const upper = banded.map((point) => [point.x, point.high]);
  const lower = banded.map((point) => [point.x, point.low]).reverse();
  const label = `${title}: ${round(first.y)} at epoch ${first.x}, ${round(last.y)} at ${last.x}`;
  const svg = drawn(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...ticks(low, high).flatMap((value) => [
      drawn("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y(value), y2: y(value) }),
      drawn("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, round(value)),
    ]),
    ...ticks(first.x, last.x)
      .filter(Number.isInteger)
      .map((value) =>
        drawn("text", { x: x(value), y: HEIGHT - 8, "text-anchor": "middle" }, value),
      ),
    drawn("polygon", { class: "band", points: path([...upper, ...lower]) }),
    drawn("polyline", { class: "curve", points: path(points.map((point) => [point.x, point.y])) }),
  );
  const answering = points.find((point) => point.x === best);
  if (answering) svg.append(drawn("circle", { cx: x(best), cy: y(answering.y), r: 5 }));
  const interval = banded.length ? ", with its 95 % interval" : "";
  const circle = answering ? "; the circle is the epoch that answers" : "";
  return element("figure", {}, element("figcaption", {}, title, interval, circle), svg);
}

/* The page as a whole. */

function showView() {
  const isTraining =
    location.hash === "#training" || (location.hash === "#main" && !byId("training").hidden);
  const view = isTraining ? "training" : "recommendations";
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view === "training" ? "Training" : "Recommendations"} · foretaste`;
  showTraining();
}

/** Offer every other model beside the one that is chosen. */
function offerBeside() {
  const { value } = byId("beside");
  const others = [...byId("model").options].filter((option) => !option.selected);
  const options = others.map((option) => new Option(option.value, option.value));
  byId("beside").replaceChildren(new Option("none", ""), ...options);
  byId("beside").value = others.some((option) => option.value === value) ? value : "";
}

function chooseModel() {
  offerBeside();
  search();
  showHistory();
  recommend();
  showTraining();
}

const start = latest(async () => {
  const { models } = await ask("v1/models");
  byId("model").replaceChildren(...models.map((model) => new Option(model.name, model.name)));
  document.querySelector(".models").hidden = models.length < 2;
  chooseModel();
});

byId("search").oninput = search;
byId("user").oninput = suggestUsers;
byId("user").onfocus = suggestUsers;
byId("user-form").onsubmit = (event) => {
  event.preventDefault();
  lookUp(byId("user").value.trim());
};
byId("leave").onclick = () => {
  byId("user").value = "";
  byId("user").focus();
  lookUp(null);
};
byId("model").onchange = chooseModel;
byId("beside").onchange = () => {
  recommend();
  showTraining();
};
addEventListener("hashchange", showView);
showView();
start();
