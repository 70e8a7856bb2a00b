//! Derived columns: tables that reach their tenant through another one.

mod columns;
