// What a page has opened (streams, charts, listeners) and must close when another one comes.

let open = [];

export function whenClosed(close) {
  open.push(close);
}

export function closeAll() {
  const closing = open;
  open = [];
  for (const close of closing) close();
}
