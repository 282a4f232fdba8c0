// Addresses of the pages of a run.

/** A folder's name need not be text; what is not becomes a sign, and the link then says that there is no such run. */
function wellFormed(id) {
  return id.replace(/\p{Cs}/gu, "\ufffd");
}

export function linkTo(id, page, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return `#/run/${encodeURIComponent(wellFormed(id))}/${page}${query ? `?${query}` : ""}`;
}
