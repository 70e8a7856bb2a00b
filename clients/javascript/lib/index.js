export { configOf, connect } from "./connection.js";
export { shardFor } from "./hash.js";
export { isMoving } from "./moving.js";
export { Router } from "./router.js";
