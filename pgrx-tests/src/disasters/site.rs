//! The servers of one cell, the preparations for its disaster, and the disaster itself.

use super::addresses::{Addresses, MASTER};
use super::backup::{self, Backup};
use super::disaster::{Disaster, Link, Place};
use super::full_disk::SmallDisk;
use crate::cluster::{Cluster, DATABASE, MOVER};
use crate::matrix::create_tables;
use crate::relay::Relay;
use crate::server::{Server, Stop};
use crate::{Result, standby};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The timeout of the cutovers here.
pub const TIMEOUT: Duration = Duration::from_secs(3);
/// The grace that is promised beyond it.
pub const GRACE: Duration = Duration::from_secs(2);
/// The delay of a slow link in each direction.
const DELAY: Duration = Duration::from_millis(20);

pub struct Site {
    pub cluster: Cluster,
    pub addresses: Arc<Addresses>,
    disaster: Disaster,
    relay: Option<Relay>,
    backup: Option<Backup>,
    /// It is ready to replace the server that is struck.
    standby: Option<Server>,
    /// The server that a standby has replaced.
    former: Option<Server>,
    disk: Option<SmallDisk>,
    /// When the backup was taken, or the standby was cut off.
    pub forgotten_since: Option<Instant>,
}

impl Site {
    pub fn new(disaster: Disaster) -> Result<Site> {
        let timeout = format!("shardmaster.cutover_timeout = '{}ms'", TIMEOUT.as_millis());
        let route = format!("shardmaster.route_wait_timeout = '{}ms'", TIMEOUT.as_millis());
        let cluster = Cluster::servers(
            2,
            &[
                "fsync = off",
                "autovacuum = off",
                "shardmaster.tail_interval = 20",
                "shardmaster.watch_interval = 200",
                "shardmaster.remote_timeout = '4s'",
                &timeout,
                &route,
            ],
        )?;
        create_tables(&cluster)?;
        let addresses = Arc::new(Addresses::default());
        for (number, server) in cluster.servers.iter().enumerate() {
            addresses.add(number, server);
        }
        addresses.add(MASTER, &cluster.master);
        let mut master = cluster.superuser()?;
        master.batch_execute(
            "SELECT shard_assign_many('{moves, \"stays a\"}', 'shard_a'), shard_assign('stays b', 'shard_b')",
        )?;
        let relay = match disaster.link() {
            Some(link) => Some(put_relay(&cluster, link)?),
            None => None,
        };
        let mut site = Site {
            cluster,
            addresses,
            disaster,
            relay,
            backup: None,
            standby: None,
            former: None,
            disk: None,
            forgotten_since: None,
        };
        site.prepare()?;
        Ok(site)
    }

    /// Prepares what must exist from the beginning.
    fn prepare(&mut self) -> Result<()> {
        match self.disaster {
            Disaster::Full(place) => self.disk = Some(SmallDisk::under(self.server(place))?),
            Disaster::Standby(place) => {
                let standby = match place.server() {
                    Some(number) => standby::add(&self.cluster, number)?,
                    None => standby::start(&self.cluster.master)?,
                };
                self.addresses.add(place.server().unwrap_or(MASTER), &standby);
                self.standby = Some(standby);
            }
            _ => {}
        }
        Ok(())
    }

    pub fn server(&self, place: Place) -> &Server {
        place.server().map_or(&self.cluster.master, |number| &self.cluster.servers[number])
    }

    fn server_mut(&mut self, place: Place) -> &mut Server {
        match place.server() {
            Some(number) => &mut self.cluster.servers[number],
            None => &mut self.cluster.master,
        }
    }

    /// From here on the writes of the server that is struck may be lost.
    pub fn take_backup(&mut self) -> Result<()> {
        let at = Instant::now();
        match self.disaster {
            Disaster::Disk(place) => self.backup = Some(Backup::of_disk(self.server(place))?),
            // A server that is gone is replaced by its last backup if no call helps.
            Disaster::Gone(place @ (Place::Source | Place::Target)) => {
                self.backup = Some(Backup::of_disk(self.server(place))?);
            }
            Disaster::Dump(place) => self.backup = Some(Backup::by_dump(self.server(place))?),
            Disaster::Standby(place) => {
                let standby = self.standby.as_ref().ok_or("no standby")?;
                standby::separate(self.server(place), standby)?;
            }
            _ => return Ok(()),
        }
        self.forgotten_since = Some(at);
        Ok(())
    }

    pub fn strike(&mut self) -> Result<()> {
        if let Some(place) = self.disaster.place() {
            self.addresses.outage_begins(place.server().unwrap_or(MASTER));
        }
        match self.disaster {
            Disaster::Dump(place) | Disaster::Disk(place) => {
                backup::put_aside(self.server_mut(place))?;
                self.restore(place)
            }
            Disaster::Standby(place) => self.fail_over(place),
            Disaster::Gone(place) => backup::put_aside(self.server_mut(place)),
            Disaster::Hung(place) => self.server(place).hang(),
            Disaster::Full(_) => self.disk.as_ref().map_or(Ok(()), SmallDisk::fill),
            Disaster::Cut(_) => self.on_link(Relay::cut),
            Disaster::Silent(_) => self.on_link(Relay::silence),
            Disaster::Slow(_) => self.on_link(|relay| relay.delay(DELAY)),
            Disaster::OneLost(_) => self.on_link(Relay::silence_one),
        }
    }

    /// Ends a disaster that ends by itself or is repaired by somebody.
    pub fn mend(&mut self) -> Result<()> {
        match self.disaster {
            Disaster::Hung(place) => self.server(place).wake()?,
            Disaster::Full(_) => self.disk.as_ref().map_or(Ok(()), SmallDisk::make_room)?,
            Disaster::Cut(_) | Disaster::Silent(_) | Disaster::OneLost(_) => self.on_link(Relay::mend)?,
            Disaster::Gone(_) | Disaster::Slow(_) => return Ok(()),
            Disaster::Dump(_) | Disaster::Disk(_) | Disaster::Standby(_) => {}
        }
        if let Some(place) = self.disaster.place() {
            self.addresses.outage_ends(place.server().unwrap_or(MASTER));
        }
        Ok(())
    }

    fn on_link(&self, what: impl FnOnce(&Relay)) -> Result<()> {
        self.relay.as_ref().map(what).ok_or_else(|| "no relay".into())
    }

    /// Restores the server from its backup.
    pub fn restore(&mut self, place: Place) -> Result<()> {
        let backup = self.backup.take().ok_or("there is no backup")?;
        backup.restore(self.server_mut(place))
    }

    fn fail_over(&mut self, place: Place) -> Result<()> {
        let standby = self.standby.take().ok_or("no standby")?;
        self.server_mut(place).stop(Stop::Kill)?;
        standby.promote()?;
        self.former = Some(std::mem::replace(self.server_mut(place), standby));
        Ok(())
    }

    /// Brings the server back with everything that it had when disaster struck.
    pub fn restore_latest(&mut self, place: Place) -> Result<()> {
        let number = place.server().unwrap_or(MASTER);
        self.addresses.outage_begins(number);
        self.bring_back(place)?;
        self.addresses.outage_ends(number);
        Ok(())
    }

    fn bring_back(&mut self, place: Place) -> Result<()> {
        if let Some(mut former) = self.former.take() {
            self.server_mut(place).stop(Stop::Fast)?;
            former.run()?;
            *self.server_mut(place) = former;
            return Ok(());
        }
        backup::bring_back(self.server_mut(place))
    }
}

fn put_relay(cluster: &Cluster, link: Link) -> Result<Relay> {
    let shard = link.server();
    let relay = Relay::before(&cluster.servers[shard])?;
    cluster.superuser()?.execute(
        "UPDATE shardmaster.shard SET conninfo = $2 WHERE shard_key = $1",
        &[&cluster.shards[shard].key, &relay.conninfo(DATABASE, MOVER)],
    )?;
    Ok(relay)
}
