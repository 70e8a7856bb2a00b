//! The service in front of a shard, which answers requests for its keys.

use super::address::Address;
use crate::catalog::{event, shard};
use crate::error::Failure;

/// Sets the addresses of the service; `None` removes them.
pub fn set(shard_key: &str, address: Option<&str>) -> Result<(), Failure> {
    let shard = shard::by_key(shard_key)?;
    let address = address.map(Address::parse_list).transpose()?.map(|replicas| {
        let replicas: Vec<&str> = replicas.iter().map(Address::as_str).collect();
        replicas.join(", ")
    });
    shard::set_service(&shard, address.as_deref());
    event::topology_changed();
    Ok(())
}
