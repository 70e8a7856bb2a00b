//! The operator of a cell. It makes the next call, reads the error if the split stops, and makes the call
//! that the error's hint, or the documentation, names.

use super::disaster::{Disaster, Place};
use super::injections::{Injection, SplitStage};
use super::manual_recovery;
use super::site::Site;
use crate::cluster::DATABASE;
use crate::split::Split;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

/// The limit for everything that follows a disaster.
const LIMIT: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(40);

/// The calls that help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// shard_split_resume, once there is room or the server is complete.
    Resume,
    /// shard_adopt for each shard, and then resume.
    Adopt,
    /// The shard is restored to a time after the cutover, and the split is resumed.
    RestoreLatest,
    /// The shard is restored from its last backup.
    RestoreBackup,
    /// shard_split_rollback, and then the split from its beginning.
    Again,
    /// shard_split_rollback(.., target_lost => true).
    TargetLost,
    /// shard_split_finish(.., source_lost => true).
    SourceLost,
    /// The rows that only the source has are copied to the target by hand, then finish with accept_missing.
    BringOver,
    /// The copies on the target are deleted by hand.
    ByHand,
    /// A new master, which cleans up what the old one has left.
    NewMaster,
}

/// Texts of hints and errors, and the call that each asks for.
const NAMED: &[(&str, Help)] = &[
    ("shard_adopt", Help::Adopt),
    ("to a time after the cutover", Help::RestoreLatest),
    ("accept_missing => true", Help::BringOver),
    ("back and start it again", Help::Again),
    ("Check free disk space", Help::Resume),
    ("Check that the server runs", Help::Resume),
    ("The server runs, but", Help::Resume),
];

/// How a split ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Finished,
    RolledBack,
    /// A new master leaves the rows where they are.
    Abandoned,
}

pub struct Operator<'a> {
    pub site: &'a mut Site,
    pub disaster: Disaster,
    pub injection: &'static Injection,
    pub split: i64,
    /// The time of the disaster, and the last number that the moving tenant's client had used by then.
    pub struck: Option<(SystemTime, i64)>,
    /// How long the worker was held while disaster struck.
    pub held: Duration,
    /// Errors and reasons to wait that were shown meanwhile.
    pub seen: BTreeSet<String>,
    /// The calls that were needed, and the error that asked for each.
    pub helped: Vec<(Help, String)>,
}

struct Look {
    phase: String,
    goal: String,
    step: String,
    activity: String,
    error: String,
    finished: bool,
    waiting: String,
    hint: String,
}

impl Look {
    fn asks_for_a_restore(&self) -> bool {
        self.phase == "completed"
            && self.step != "moved"
            && ["was restored to a time before", "restore the shard to a time after the cutover"]
                .iter()
                .any(|text| self.waiting.contains(text))
    }
}

impl Operator<'_> {
    /// Makes calls until the split has ended.
    pub fn bring_to_end(&mut self) -> Result<Ended> {
        let deadline = Instant::now() + LIMIT;
        if let Some(ended) = self.replace_what_is_gone()? {
            return Ok(ended);
        }
        loop {
            let look = self.look();
            if let Ok(Some(look)) = &look {
                self.seen.extend(
                    [&look.error, &look.waiting].into_iter().filter(|text| !text.is_empty()).cloned(),
                );
                if look.phase == "completed" && look.error.starts_with("cutover aborted") {
                    return Err(format!("said of a cutover that has decided: {}", look.error).into());
                }
                if look.finished {
                    return Ok(Ended::Finished);
                }
                if look.phase == "rolled_back" && look.goal == "rolled_back" {
                    self.delete_copies()?;
                    return Ok(Ended::RolledBack);
                }
            }
            if Instant::now() > deadline {
                return Err(format!("no end in {LIMIT:?}: {}", self.describe(&look)).into());
            }
            match look {
                // A rollback that a restored master has forgotten is requested again first.
                Ok(Some(look)) if look.activity == "failed" && self.takes_back(&look) => {
                    self.call("rollback($1)")?;
                }
                Ok(Some(look)) if look.activity == "failed" => self.help(&look)?,
                // An aborted cutover does not fail its split.
                Ok(Some(look)) if look.hint.contains("shard_adopt") => self.help(&look)?,
                // After a decision the worker retries, and reports what helps.
                Ok(Some(look)) if look.asks_for_a_restore() && self.helped.is_empty() => {
                    let hint = look.waiting.clone();
                    self.help(&Look { error: hint.clone(), hint, ..look })?;
                }
                Ok(Some(look)) => self.ask_for_next(&look)?,
                Ok(None) => self.plan()?,
                // A server that was just restored may not be ready.
                Err(_) => {}
            }
            std::thread::sleep(LOOK);
        }
    }

    pub fn plan(&mut self) -> Result<()> {
        let query = "SELECT shard_split_plan('shard_a', 'shard_b', '{moves}')";
        self.split = self.site.cluster.superuser()?.query_one(query, &[])?.get(0);
        Ok(())
    }

    pub fn call(&mut self, call: &str) -> Result<()> {
        let query = format!("SELECT shard_split_{}", call.replace("$1", &self.split.to_string()));
        Ok(self.site.cluster.superuser()?.batch_execute(&query)?)
    }

    /// Looks once more, to record what the split reports.
    pub fn note(&mut self) {
        if let Ok(Some(look)) = self.look() {
            self.seen.extend([look.error, look.waiting].into_iter().filter(|text| !text.is_empty()));
        }
    }

    fn takes_back(&self, look: &Look) -> bool {
        self.injection.stage == SplitStage::RollingBack
            && look.hint.starts_with("Before the cutover's decision, run SELECT shard_split_rollback")
    }

    fn look(&self) -> Result<Option<Look>> {
        let row = self.site.cluster.superuser()?.query_opt(
            "SELECT phase, goal, cutover_step, activity, coalesce(error_message, ''), finished_at IS NOT NULL,
                    coalesce(shardmaster.split_waits_for(id), ''), coalesce(error_hint, '')
               FROM shardmaster.split_plan WHERE id = $1",
            &[&self.split],
        )?;
        Ok(row.map(|row| Look {
            phase: row.get(0),
            goal: row.get(1),
            step: row.get(2),
            activity: row.get(3),
            error: row.get(4),
            finished: row.get(5),
            waiting: row.get(6),
            hint: row.get(7),
        }))
    }

    fn describe(&self, look: &Result<Option<Look>>) -> String {
        match look {
            Ok(Some(look)) => format!(
                "{}, goal {}, step {}, {}, waiting for {:?}, error {:?}, helped by {:?}",
                look.phase, look.goal, look.step, look.activity, look.waiting, look.error, self.helped
            ),
            Ok(None) => "the split is not known".into(),
            Err(error) => error.to_string(),
        }
    }

    /// Makes the next call. A refused call is made again at the next look.
    fn ask_for_next(&mut self, look: &Look) -> Result<()> {
        let goes_back = self.injection.stage == SplitStage::RollingBack;
        let call = match (look.phase.as_str(), look.goal.as_str()) {
            (_, "rolled_back") | ("completed", "finished") => return Ok(()),
            ("completed", _) if look.step == "moved" => "finish($1)",
            _ if goes_back => "rollback($1)",
            ("planning", "planning") => "start_dual_write($1)",
            ("dual_write", "dual_write") => "run_backfill($1)",
            ("cutover_pending", "backfill") => "cutover($1)",
            _ => return Ok(()),
        };
        match self.call(call) {
            Err(error) if error.sqlstate().is_some_and(|s| !s.starts_with("57P") && s != "55000") => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn help(&mut self, look: &Look) -> Result<()> {
        let known = NAMED.iter().find(|(text, _)| look.hint.contains(text));
        let Some((_, help)) = known else {
            return Err(format!("failed, and no help is named: {}; HINT: {}", look.error, look.hint).into());
        };
        if self.helped.iter().filter(|(one, _)| one == help).count() >= 2 {
            return Err(format!("{help:?} does not help: {}", look.error).into());
        }
        self.helped.push((*help, look.error.clone()));
        self.give(*help)
    }

    fn give(&mut self, help: Help) -> Result<()> {
        match help {
            Help::Resume => self.call("resume($1)"),
            Help::Adopt => {
                let adopt = "SELECT shard_adopt('shard_a'), shard_adopt('shard_b')";
                self.site.cluster.superuser()?.batch_execute(adopt)?;
                self.call("resume($1)")
            }
            Help::RestoreLatest => {
                let place = self.disaster.place().ok_or("no server was restored")?;
                self.site.restore_latest(place)?;
                if self.injection.stage == SplitStage::Ended { Ok(()) } else { self.call("resume($1)") }
            }
            Help::RestoreBackup => {
                let place = self.disaster.place().ok_or("no server was restored")?;
                self.site.restore(place)
            }
            Help::Again => {
                self.call("rollback($1)")?;
                Split::of(&self.site.cluster, self.split).wait("rolled_back", LIMIT)?;
                self.delete_copies()?;
                self.call("start_dual_write($1)")
            }
            Help::ByHand => manual_recovery::delete_copies(self.site),
            Help::TargetLost => self.call("rollback($1, target_lost => true)"),
            Help::SourceLost => self.call("finish($1, source_lost => true)"),
            Help::BringOver => {
                let (since, before) = self.struck.ok_or("nothing was struck")?;
                manual_recovery::bring_over(self.site, self.split, since, before)?;
                self.call("finish($1, accept_missing => true)")
            }
            Help::NewMaster => manual_recovery::new_master(self.site),
        }
    }

    /// If a rollback has left rows, its event says so.
    fn delete_copies(&mut self) -> Result<()> {
        let events = self.history();
        let Some(said) = events.lines().find(|line| line.contains("delete the copies by hand")) else {
            return Ok(());
        };
        self.helped.push((Help::ByHand, said.trim().to_owned()));
        self.give(Help::ByHand)
    }

    /// Makes the call for a server that does not come back.
    fn replace_what_is_gone(&mut self) -> Result<Option<Ended>> {
        let help = match (self.disaster, self.injection.stage) {
            (Disaster::Gone(Place::Master), _) => Help::NewMaster,
            (
                Disaster::Gone(Place::Target),
                SplitStage::Finishing | SplitStage::Purged | SplitStage::Ended,
            ) => Help::RestoreLatest,
            (Disaster::Gone(Place::Target), _) if self.injection.is_before_decision() => Help::TargetLost,
            (Disaster::Gone(Place::Source), stage)
                if stage >= SplitStage::Decided && stage <= SplitStage::Ended =>
            {
                Help::SourceLost
            }
            (Disaster::Gone(_), _) => Help::RestoreBackup,
            // Nobody watches a finished split, but the operator who has restored a shard knows it.
            (disaster, SplitStage::Ended)
                if disaster.forgets() && disaster.place() != Some(Place::Master) =>
            {
                Help::RestoreLatest
            }
            _ => return Ok(None),
        };
        self.helped.push((help, "nothing".into()));
        self.give(help)?;
        if matches!(help, Help::RestoreBackup | Help::RestoreLatest) {
            self.site.addresses.outage_ends(self.disaster.place().and_then(Place::server).unwrap_or(2));
        }
        Ok((help == Help::NewMaster).then_some(Ended::Abandoned))
    }

    /// Returns the split's events.
    pub fn history(&self) -> String {
        let query = "SELECT string_agg(format('  %s %s', to_char(at, 'HH24:MI:SS.MS'), concat_ws(' ', from_phase, to_phase, detail)), E'\\n' ORDER BY at)
                       FROM shard_split_events($1)";
        let ask = || -> Result<Option<String>> {
            let mut master = self.site.cluster.master.superuser(DATABASE)?;
            Ok(master.query_one(query, &[&self.split]).map_err(Error::from)?.get(0))
        };
        ask().ok().flatten().unwrap_or_default()
    }
}
