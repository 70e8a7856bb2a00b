//! Random walks: an operator's calls in any order, with faults and with clients that write
//! beside them, each step compared with a model of what must be true.

pub mod acts;
pub mod backwards;
pub mod book;
pub mod calls;
pub mod compare;
pub mod disturb;
pub mod ending;
pub mod faults;
pub mod keys;
pub mod leftovers;
pub mod lost;
pub mod model;
pub mod predict;
pub mod probe;
pub mod restore;
pub mod stage;
pub mod strain;
pub mod summary;
pub mod topology;
pub mod walk;
pub mod weather;
pub mod writers;
