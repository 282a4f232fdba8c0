// The page's colours as its style sheet names them, and whether it is dark. Changes are told by "themechange".

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export const SERIES = 8;

/** The colour of curve number `index`; after eight they begin again, dashed. */
export function colour(index) {
  return token(`--series-${index % SERIES}`);
}

export function dashOf(index) {
  return index >= SERIES ? [6, 4] : undefined;
}

/** "#0072b2" as [0, 114, 178]. */
export function channels(hex) {
  return [1, 3, 5].map((place) => Number.parseInt(hex.slice(place, place + 2), 16));
}

/** The colour at `share` of the way between colours, given as lists of channels. */
export function between(stops, share) {
  const place = Math.min(0.999999, Math.max(0, share)) * (stops.length - 1);
  const from = stops[Math.floor(place)];
  const to = stops[Math.floor(place) + 1];
  const part = place - Math.floor(place);
  return `rgb(${from.map((value, index) => Math.round(value + part * (to[index] - value))).join(",")})`;
}

function toggle() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("trimtab-theme", document.documentElement.dataset.theme);
  } catch {
    // a file opened from disk may have no storage
  }
  dispatchEvent(new Event("themechange"));
}

/** The button's text and action, and the choice of the last visit put back. */
export const themeSwitch = { label: "Light or dark", mark: "◐", toggle };

export function restoreTheme() {
  try {
    const kept = localStorage.getItem("trimtab-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // as above
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
}
