//! Databases that were not sharded: tables that reach their tenant through another one, and all steps in one call.

mod adopted;
mod columns;
