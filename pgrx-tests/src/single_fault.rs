//! A fault of the master that strikes once, and what it takes along.

use crate::cluster::Cluster;
use crate::wait;
use crate::{Error, Result};
use postgres::Client;
use std::time::Duration;

/// A fault that is set, as `point=action`.
pub struct SingleFault<'a> {
    cluster: &'a Cluster,
    fault: String,
    /// That it fires is on record before it does, and for a moment after one process was killed its
    /// server still takes sessions that it is about to end. Who was there before dies with it.
    witness: Option<Client>,
}

impl<'a> SingleFault<'a> {
    pub fn arm(cluster: &'a Cluster, point: &str, action: &str) -> Result<Self> {
        let fault = format!("{point}={action}");
        let witness = if action == "kill" { Some(cluster.superuser()?) } else { None };
        cluster.fault(&fault)?;
        // What leads to the point may be done once only: until then all processes are to know it. A session that begins has
        // the fault after those that were there; a server that it has ended already takes none.
        wait::until(&format!("{fault} to be known"), Duration::from_secs(60), || {
            let Ok(mut session) = cluster.superuser() else { return Ok(Some(())) };
            let known = session.query_one("SELECT current_setting('shardmaster.fault')", &[]);
            Ok(known.map_or(Some(()), |row| (row.get::<_, &str>(0) == fault).then_some(())))
        })?;
        Ok(SingleFault { cluster, fault, witness })
    }

    /// Does what leads to it, of which the answer may be lost: whoever is killed takes the master's other sessions along.
    pub fn by<T>(&self, lead: impl FnOnce() -> std::result::Result<T, postgres::Error>) -> Result<()> {
        match lead().map_err(Error::from) {
            Err(error) if self.witness.is_some() && error.is_lost() => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Waits until it has struck and the master answers again, and takes it back.
    pub fn wait(self, limit: Duration) -> Result<()> {
        let fired = "SELECT EXISTS (SELECT FROM shardmaster.fault_fired WHERE fault = $1)";
        wait::until(&self.fault, limit, || {
            let Ok(mut session) = self.cluster.superuser() else { return Ok(None) };
            Ok(session.query_one(fired, &[&self.fault]).ok().filter(|row| row.get::<_, bool>(0)))
        })?;
        if let Some(mut witness) = self.witness {
            let what = format!("the master to end by {}", self.fault);
            wait::until(&what, limit, || Ok(witness.simple_query("SELECT 1").err()))?;
        }
        wait::until("the master to be back", limit, || Ok(self.cluster.fault("").ok()))
    }
}
