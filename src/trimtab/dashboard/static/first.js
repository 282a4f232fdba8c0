// Asks for the run of the address at once, while the pages' modules are still on their way. `source.js` takes the
// answer. A plain script: a module would wait for the document.

window.trimtabAsked = new Map();
try {
  const [, run] = /^#\/?run\/([^/?]+)/.exec(location.hash) ?? [];
  if (run) {
    const address = `/api/run?${new URLSearchParams({ run: decodeURIComponent(run) })}`;
    const answer = fetch(address);
    answer.catch(() => {}); // whoever takes it is told
    window.trimtabAsked.set(address, answer);
  }
} catch {
  // the router says what is wrong with the address
}
