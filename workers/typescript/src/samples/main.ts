/** Serves the sample policies: `npm run samples`. */

import { server } from "./server.js";

server.main();
