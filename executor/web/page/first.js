// Ends whatever an earlier page of this origin left in the browser to answer in the executor's place. A module would run
// too late.
"use strict";

navigator.serviceWorker?.getRegistrations().then((found) => found.forEach((worker) => worker.unregister()));
