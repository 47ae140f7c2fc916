// The page of the service: what somebody likes, and the lists of one or two models. Text from the
// service becomes text of elements, never markup.

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

/** A function that begins again with each call, as the one before is given up; shows what fails. */
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

/* The page as a whole. */

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
}

const start = latest(async () => {
  const { models } = await ask("v1/models");
  byId("model").replaceChildren(...models.map((model) => new Option(model.name, model.name)));
  document.querySelector(".models").hidden = models.length < 2;
  chooseModel();
});

byId("search").oninput = search;
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
byId("beside").onchange = recommend;
start();
