//! A cutover that is disturbed. Most of what can go wrong in a split goes wrong there.

use super::faults::Fault;
use super::model::{Phase, SplitView};
use super::outages::Place;
use super::walk::Walk;
use crate::Result;
use std::time::Duration;

impl Walk {
    pub(super) fn disturb_cutover(&mut self) -> Result<String> {
        let mut ready = self.ready()?;
        if ready.is_empty() {
            let text = self.run_to(&["cutover_pending"])?;
            self.note(text);
            ready = self.ready()?;
        }
        if ready.is_empty() {
            return Ok("no cutover to disturb".into());
        }
        let id = *self.random.one_of(&ready);
        let fault = self.fault_of(id);
        let comes_first = matches!(fault, Fault::At(_)) || self.random.percent(30);
        if comes_first {
            self.add(&fault)?;
        }
        self.operate_unless(&format!("SELECT shard_split_cutover({id})"), "55000")?;
        let next = *self.random.one_of(&["", "", "shard_split_pause", "shard_split_rollback"]);
        std::thread::sleep(Duration::from_millis(self.random.below(120) as u64));
        if !comes_first {
            self.add(&fault)?;
        }
        if !next.is_empty() {
            // The call is refused if the cutover has decided.
            self.operate_unless(&format!("SELECT {next}({id})"), "55000")?;
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(format!("cutover of split {id} with {fault:?} {next}"))
    }

    /// Returns the splits that could be cut over.
    fn ready(&mut self) -> Result<Vec<i64>> {
        let is_ready = |split: &&SplitView| split.phase == Phase::CutoverPending && !split.is_rolling_back();
        Ok(self.look()?.iter().filter(is_ready).map(|split| split.id).collect())
    }

    fn add(&mut self, fault: &Fault) -> Result<()> {
        let lasting = self.stage.harm(fault, &self.outages, &mut self.random)?;
        self.lasting.extend(lasting);
        Ok(())
    }

    fn fault_of(&mut self, id: i64) -> Fault {
        let sides = self.model.split(id).map(|split| (split.source, split.target));
        let (source, target) = sides.unwrap_or_default();
        let (source, target) = (self.stage.server_of(source), self.stage.server_of(target));
        let points: Vec<String> =
            self.points.iter().filter(|point| point.starts_with("cutover_")).cloned().collect();
        match self.random.below(12) {
            0..6 => {
                let action = *self.random.one_of(&["error", "exit", "exit", "exit", "kill"]);
                Fault::At(format!("{}={action}", self.random.one_of(&points)))
            }
            6 => Fault::Terminate,
            7 => Fault::Silent(target),
            8 => Fault::Cut(target),
            9 => Fault::Hang(Place::Server(target)),
            10 => Fault::Silent(source),
            _ => Fault::Restart(Place::Server(target)),
        }
    }
}
