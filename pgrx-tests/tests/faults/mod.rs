//! Processes, servers and links that fail, at injection points and at random.

mod bad_input;
mod disasters;
mod frozen_worker;
mod histories;
mod injection_points;
mod lost_shard;
mod networks;
mod patroni;
mod walks;
