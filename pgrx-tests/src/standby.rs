//! A shard with an asynchronous standby that is cut off and then promoted, so what the primary has done in
//! between is lost.

use crate::cluster::{Cluster, DATABASE};
use crate::server::{Server, Stop};
use crate::{Result, wait};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

/// Gives a shard a standby, and the mover a connection string that finds whichever of the two takes writes.
pub fn add(cluster: &Cluster, shard: usize) -> Result<Server> {
    let primary = &cluster.servers[shard];
    let standby = start(primary)?;
    let conninfo = format!(
        "host={},{} port=5432,5432 dbname={DATABASE} user=mover target_session_attrs=read-write",
        primary.socket_dir().display(),
        standby.socket_dir().display()
    );
    let update = "UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = $2";
    cluster.superuser()?.execute(update, &[&conninfo, &cluster.shards[shard].key])?;
    Ok(standby)
}

/// Starts a standby that follows a server.
pub fn start(primary: &Server) -> Result<Server> {
    let mut standby = Server::standby_of(primary, "standby")?;
    standby.run()?;
    Ok(standby)
}

/// Waits until the standby has everything, and then cuts it off.
pub fn cut_off(cluster: &Cluster, shard: usize, standby: &Server) -> Result<()> {
    separate(&cluster.servers[shard], standby)
}

/// Cuts off the standby of any server, once it has everything.
pub fn separate(primary: &Server, standby: &Server) -> Result<()> {
    let mut primary = primary.superuser(DATABASE)?;
    let lsn: String = primary.query_one("SELECT pg_current_wal_flush_lsn()::text", &[])?.get(0);
    let mut replica = standby.superuser(DATABASE)?;
    let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'");
    wait::until_true(&mut replica, "the standby to catch up", LIMIT, &caught_up)?;
    replica.batch_execute("ALTER SYSTEM SET primary_conninfo = 'host=/nowhere'")?;
    replica.batch_execute("SELECT pg_reload_conf()")?;
    let alone = "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_replication)";
    wait::until_true(&mut primary, "the standby to be alone", LIMIT, alone)
}

/// Kills the primary, and lets the standby take its place in the cluster.
pub fn fail_over(cluster: &mut Cluster, shard: usize, standby: Server) -> Result<()> {
    cluster.servers[shard].stop(Stop::Kill)?;
    standby.promote()?;
    cluster.servers[shard] = standby;
    Ok(())
}
