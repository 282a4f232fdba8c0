// Work that can wait until its element comes into sight: charts, and the values of whole sections.

import { whenClosed } from "./lifetime.js";

const AHEAD = "400px";

/** Calls run() once, when the element is in sight or nearly so. */
export function whenSeen(element, run) {
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      run();
    },
    { rootMargin: AHEAD },
  );
  observer.observe(element);
  whenClosed(() => observer.disconnect());
}
