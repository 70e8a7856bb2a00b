//! Faults of servers, links and workers.

use super::outages::{Outages, Place};
use super::stage::{SERVERS, WalkCluster};
use crate::Result;
use crate::random::Random;
use crate::server::Stop;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A value of shardmaster.fault, for the next worker that reaches the point.
    At(String),
    /// The sessions of all workers on the master end.
    Terminate,
    Restart(Place),
    /// The server stops in the middle of whatever it does, and continues after a while.
    Hang(Place),
    Cut(usize),
    Silent(usize),
}

impl Fault {
    pub fn choose(random: &mut Random, points: &[String]) -> Fault {
        let shard = random.below(SERVERS);
        match random.below(12) {
            0..5 => {
                let action = *random.one_of(&["error", "error", "exit", "exit", "kill"]);
                Fault::At(format!("{}={action}", random.one_of(points)))
            }
            5..7 => Fault::Terminate,
            7 if random.percent(40) => Fault::Restart(Place::Master),
            7 => Fault::Restart(Place::Server(shard)),
            8 => Fault::Hang(Place::Server(shard)),
            9 => Fault::Hang(Place::Master),
            10 => Fault::Cut(shard),
            _ => Fault::Silent(shard),
        }
    }
}

/// A fault that lasts until its time is over.
#[derive(Debug)]
pub struct LastingFault {
    fault: Fault,
    until: Instant,
}

impl WalkCluster {
    /// Injects a fault. Returns it if it lasts.
    pub fn harm(
        &mut self,
        fault: &Fault,
        outages: &Outages,
        random: &mut Random,
    ) -> Result<Option<LastingFault>> {
        let time = Duration::from_millis(200 + random.below(4000) as u64);
        match fault {
            Fault::At(point) => {
                if point.ends_with("=kill") {
                    outages.begins(Place::Master);
                }
                // The same fault would not fire a second time.
                self.cluster.superuser()?.batch_execute("DELETE FROM shardmaster.fault_fired")?;
                self.cluster.fault("")?;
                self.cluster.fault(point)?;
            }
            Fault::Terminate => {
                let query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                              WHERE backend_type LIKE 'shardmaster split %'";
                self.cluster.superuser()?.batch_execute(query)?;
                return Ok(None);
            }
            Fault::Restart(place) => {
                outages.begins(*place);
                let server = match place {
                    Place::Server(shard) => &mut self.cluster.servers[*shard],
                    _ => &mut self.cluster.master,
                };
                server.restart(Stop::Immediate)?;
                outages.ends(*place);
                return Ok(None);
            }
            Fault::Hang(place) => {
                outages.begins(*place);
                match place {
                    Place::Server(shard) => self.cluster.servers[*shard].hang()?,
                    _ => self.cluster.master.hang()?,
                }
                // Nobody can look at a cluster that does not answer, so it continues at once.
                std::thread::sleep(time.min(Duration::from_millis(2500)));
                return self.mend(&LastingFault { fault: fault.clone(), until: Instant::now() }, outages);
            }
            Fault::Cut(shard) => {
                outages.begins(Place::Link(*shard));
                self.relays[*shard].cut();
            }
            Fault::Silent(shard) => {
                outages.begins(Place::Link(*shard));
                self.relays[*shard].silence();
            }
        }
        Ok(Some(LastingFault { fault: fault.clone(), until: Instant::now() + time }))
    }

    fn mend(&mut self, lasting: &LastingFault, outages: &Outages) -> Result<Option<LastingFault>> {
        match &lasting.fault {
            Fault::At(_) => {
                self.cluster.fault("")?;
                outages.ends(Place::Master);
            }
            Fault::Hang(place) => {
                match place {
                    Place::Server(shard) => self.cluster.servers[*shard].wake()?,
                    _ => self.cluster.master.wake()?,
                }
                outages.ends(*place);
            }
            Fault::Cut(shard) | Fault::Silent(shard) => {
                self.relays[*shard].mend();
                outages.ends(Place::Link(*shard));
            }
            Fault::Terminate | Fault::Restart(_) => {}
        }
        Ok(None)
    }

    /// Ends the faults whose time is over, or all of them if `all` is set.
    pub fn clear_up(&mut self, lasting: &mut Vec<LastingFault>, outages: &Outages, all: bool) -> Result<()> {
        let now = Instant::now();
        let (over, going_on) = lasting.drain(..).partition(|one| all || one.until <= now);
        *lasting = going_on;
        let over: Vec<LastingFault> = over;
        for one in over {
            self.mend(&one, outages)?;
        }
        Ok(())
    }
}
