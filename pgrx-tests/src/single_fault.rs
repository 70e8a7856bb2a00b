//! A fault of the master that fires once, and the sessions that it ends.

use crate::cluster::Cluster;
use crate::wait;
use crate::{Error, Result};
use postgres::Client;
use std::time::Duration;

/// An armed fault, as `point=action`.
pub struct SingleFault<'a> {
    cluster: &'a Cluster,
    fault: String,
    /// A session from before the fault, which ends when the process is killed. The record of the fault is
    /// written before it fires, and for a moment afterwards the server still accepts sessions that it is
    /// about to end.
    witness: Option<Client>,
}

impl<'a> SingleFault<'a> {
    pub fn arm(cluster: &'a Cluster, point: &str, action: &str) -> Result<Self> {
        let fault = format!("{point}={action}");
        let witness = if action == "kill" { Some(cluster.superuser()?) } else { None };
        cluster.fault(&fault)?;
        // What leads to the point may be possible only once, so all processes must know the fault before
        // that. A new session gets the fault later than the existing processes. If the fault has already
        // ended the server, it accepts no session.
        wait::until(&format!("{fault} to be known"), Duration::from_secs(60), || {
            let Ok(mut session) = cluster.superuser() else { return Ok(Some(())) };
            let known = session.query_one("SELECT current_setting('shardmaster.fault')", &[]);
            Ok(known.map_or(Some(()), |row| (row.get::<_, &str>(0) == fault).then_some(())))
        })?;
        Ok(SingleFault { cluster, fault, witness })
    }

    /// Does what leads to the point. Its answer may be lost, because a killed process takes the master's
    /// other sessions along.
    pub fn by<T>(&self, lead: impl FnOnce() -> std::result::Result<T, postgres::Error>) -> Result<()> {
        match lead().map_err(Error::from) {
            Err(error) if self.witness.is_some() && error.is_lost() => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Waits until the fault has fired and the master answers again, and then resets it.
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
