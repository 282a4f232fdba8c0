// Numbers and times as a reader wants them. An absent value is a dash, never 0.

export const DASH = "–";

/** Nothing that is recorded is known this closely. */
const NOISE = 1e-9;

/** A value as text; next to 1 its distance from 1, because a ratio of 1.00004 is not 1. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return DASH;
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return minus(value.toExponential(2).replace("e+", "e"));
  if (Number.isInteger(value)) return minus(value.toLocaleString("en"));
  if (size >= 1000) return minus(Math.round(value).toLocaleString("en"));
  const text = trimmed(value.toPrecision(digits + (size >= 1)));
  return text === "1" ? besideOne(value) : minus(text);
}

function besideOne(value) {
  if (Math.abs(value - 1) < NOISE) return "1";
  if (Math.abs(value - 1) >= 1e-4) return trimmed(value.toFixed(5 + (Math.abs(value - 1) < 1e-3)));
  return `1 ${value > 1 ? "+" : "−"} ${minus(Math.abs(value - 1).toExponential(1))}`;
}

function trimmed(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

function minus(text) {
  return text.replaceAll("-", "−");
}

/** The values of an axis with as many digits as tell neighbours apart. */
export function ticks(values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  const gap = Math.min(...known.slice(1).map((value, index) => Math.abs(value - known[index])).filter((one) => one > 0));
  const most = Math.max(...known.map(Math.abs));
  if (!known.length) return values.map(() => "");
  const text = Number.isFinite(gap) && most >= 1e-3 && most < 1e5 && gap > 1e-9 ? fixed(decimals(known, gap)) : (value) => number(value, 2);
  return values.map((value) => (value === null ? "" : text(value)));
}

function fixed(places) {
  return (value) => minus((Math.abs(value) < 10 ** -places / 2 ? 0 : value).toFixed(places));
}

function decimals(values, gap) {
  for (let places = 0; places < 9; places += 1) {
    if (values.every((value) => Math.abs(Number(value.toFixed(places)) - value) < gap / 100)) return places;
  }
  return 9;
}

export function percent(share) {
  if (share === null || share === undefined) return DASH;
  if (share !== 0 && Math.abs(share) < 5e-4) return `${number(100 * share, 2)}%`;
  const text = trimmed((100 * share).toFixed(Math.abs(share) < 0.1 || Math.abs(share) > 0.99 ? 1 : 0));
  return `${text === "100" && share < 1 ? "> 99.9" : minus(text)}%`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function bytes(count) {
  if (count === null || count === undefined) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${count < 10 && unit ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

export function when(seconds) {
  if (!seconds) return DASH;
  const pad = (part) => String(part).padStart(2, "0");
  const time = new Date(1000 * seconds);
  const day = `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
  return `${day} ${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
}
