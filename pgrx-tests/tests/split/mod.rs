//! A split copies rows and follows their changes, and both sides are compared.

mod analyze;
mod bucket_keys;
mod collisions;
mod concurrent_verify;
mod encodings;
mod lifecycle;
mod long_rows;
mod major_versions;
mod native_capture;
mod native_capture_corruption;
mod parallel;
mod protocol;
mod round_trips;
mod scopes;
mod shard_by_columns;
mod small_batches;
mod stream_failures;
mod stream_locks;
mod streams;
mod throttle;
mod types;
mod verify;
mod verify_ranges;
