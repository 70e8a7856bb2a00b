//! All tests of these folders are in one program. Separate programs were each linked with everything, which
//! took minutes. `scripts/test.sh harness:NAME` runs those of a folder or of a file.

mod check;
mod cutover;
mod ddl;
mod derived;
mod executions;
mod faults;
mod lookups;
mod masters;
mod misplaced;
mod queries;
mod reference;
mod routing;
mod security;
mod sequences;
mod split;
mod tools;
