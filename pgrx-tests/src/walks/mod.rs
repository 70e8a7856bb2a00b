//! Random walks: an operator's calls in any order, with faults, and with clients that write at the same time.
//! Each step is compared with a model of what must be true.

pub mod calls;
pub mod comparison;
pub mod completion;
pub mod disturbed_cutover;
pub mod expected_answers;
pub mod expected_rows;
pub mod faults;
pub mod keys;
pub mod leftovers;
pub mod lost_target;
pub mod model;
pub mod outages;
pub mod owner_ddl;
pub mod probe;
pub mod restore;
pub mod reverse;
pub mod stage;
pub mod stress;
pub mod summary;
pub mod topology;
pub mod walk;
pub mod writers;
