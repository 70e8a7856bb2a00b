//! One walk: its steps, the checks after each step, and its end.

use super::calls::{COPIED_BEFORE, LACKS_PARTITION};
use super::comparison;
use super::expected_rows::Rows;
use super::faults::{Fault, LastingFault};
use super::keys::{KeyIndex, Space};
use super::model::{Expect, Model, Phase, SplitView};
use super::outages::{Outages, Place};
use super::owner_ddl::Spares;
use super::probe::{ProbeAnswer, Prober};
use super::stage::{BOUND, SHARDS, WalkCluster};
use super::writers::Writers;
use crate::random::Random;
use crate::{Error, Result, wait};
use postgres::Client;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(180);
/// The number of steps between two full comparisons.
const COMPARE_EVERY: usize = 12;

pub struct Walk {
    pub stage: WalkCluster,
    pub model: Model,
    pub random: Random,
    pub trail: Vec<String>,
    pub(super) outages: Arc<Outages>,
    pub(super) writers: Writers,
    prober: Prober,
    master: Option<Client>,
    pub(super) lasting: Vec<LastingFault>,
    pub(super) points: Vec<String>,
    pub(super) has_faults: bool,
    /// Whether a transaction of this walk holds rows that clients write.
    pub(super) holds_rows: bool,
    /// The time until which a split may fail because an owner has changed a table.
    excused: Instant,
    excused_all: Instant,
    pub(super) spares: Vec<Spares>,
    /// The number of names that the last shard has had.
    pub(super) names: usize,
    /// Whether the master was replaced by a restored one.
    pub(super) is_restored: bool,
    pub(super) began: Instant,
}

impl Walk {
    pub fn new(seed: u64, has_faults: bool) -> Result<Walk> {
        let stage = WalkCluster::new()?;
        let outages = Arc::new(Outages::default());
        let writers = Writers::start(&stage, outages.clone(), seed);
        let mut walk = Walk {
            model: Model::new(vec![None; stage.keys.len()], SHARDS),
            stage,
            random: Random::new(seed),
            trail: Vec::new(),
            outages,
            writers,
            prober: Prober::new(),
            master: None,
            lasting: Vec::new(),
            points: Vec::new(),
            has_faults,
            holds_rows: false,
            excused: Instant::now(),
            excused_all: Instant::now(),
            spares: vec![Spares::default(); SHARDS],
            names: 0,
            is_restored: false,
            began: Instant::now(),
        };
        walk.model.routes = walk.routed()?.into_iter().map(|route| route.map(|(shard, _)| shard)).collect();
        let points = "SELECT point FROM shard_split_points() WHERE point !~ '^(overflow|restart|reshape)_'";
        walk.points = walk.master()?.query(points, &[])?.iter().map(|row| row.get(0)).collect();
        Ok(walk)
    }

    /// Returns the operator's session, or a new one if the last is gone.
    pub(super) fn master(&mut self) -> Result<&mut Client> {
        if self.master.as_ref().is_none_or(Client::is_closed) {
            let cluster = &self.stage.cluster;
            let client = wait::until("the master", LIMIT, || Ok(cluster.superuser().ok()))?;
            self.master = Some(client);
            let settings = "SET statement_timeout = '180s'";
            if let Some(master) = &mut self.master {
                master.batch_execute(settings)?;
            }
        }
        self.master.as_mut().ok_or_else(|| Error::from("the session was just opened"))
    }

    /// Returns the result of `ask`, which is repeated if the session breaks.
    pub(super) fn ask_master<T>(
        &mut self,
        ask: impl Fn(&mut Client) -> std::result::Result<T, postgres::Error>,
    ) -> Result<T> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match ask(self.master()?) {
                Ok(value) => return Ok(value),
                Err(error) => {
                    let error = Error::from(error);
                    let is_lost =
                        error.sqlstate().is_none_or(|s| s.starts_with("57P") || s.starts_with("08"));
                    if !is_lost || Instant::now() > deadline {
                        return Err(error);
                    }
                    self.master = None;
                }
            }
        }
    }

    /// Makes a step, after which everything must be true.
    pub fn step(&mut self) -> Result<()> {
        self.stage.clear_up(&mut self.lasting, &self.outages, false)?;
        if self.has_faults && self.random.percent(2) {
            let text = self.restore_master()?;
            self.note(text);
        } else if self.has_faults && self.random.percent(16) {
            let text = self.disturb_cutover()?;
            self.note(text);
        } else if self.has_faults && self.random.percent(15) {
            let fault = Fault::choose(&mut self.random, &self.points);
            self.note(format!("{fault:?}"));
            let lasting = self.stage.harm(&fault, &self.outages, &mut self.random)?;
            self.lasting.extend(lasting);
        } else {
            let text = self.call()?;
            self.note(text);
        }
        self.check()?;
        self.resume_failed()?;
        if self.trail.len().is_multiple_of(COMPARE_EVERY) {
            self.compare()?;
        }
        Ok(())
    }

    pub(super) fn note(&mut self, text: String) {
        let line = format!("{:4} {:7.2} s  {text}", self.trail.len() + 1, self.began.elapsed().as_secs_f64());
        self.trail.push(line);
    }

    /// Returns the splits as they are now, and updates the model.
    pub(super) fn look(&mut self) -> Result<Vec<SplitView>> {
        let seen = self.ask_master(seen)?;
        self.model.observe(&seen);
        let is_excused = |(code, message): &(String, String)| {
            self.is_excused(code)
                || message.contains(LACKS_PARTITION)
                || self.is_restored && message.contains(COPIED_BEFORE)
        };
        let unexpected =
            seen.iter().find(|split| split.is_failed && !split.error.as_ref().is_some_and(is_excused));
        match unexpected.and_then(|split| split.error.as_ref().map(|error| (split.id, error))) {
            Some((id, (code, message))) => Err(format!("split {id} has failed: {message} ({code})").into()),
            None => Ok(seen),
        }
    }

    /// Allows splits to fail for a while because of what an owner does now or has just done.
    pub(super) fn excuse_failures(&mut self) {
        self.excused = Instant::now() + Duration::from_secs(20);
    }

    /// Allows splits to fail with any error for a while, because shards refuse a new master.
    pub(super) fn excuse_all_failures(&mut self) {
        self.excused_all = Instant::now() + Duration::from_secs(10);
    }

    pub(super) fn is_excused(&self, code: &str) -> bool {
        let now = Instant::now();
        now < self.excused_all || now < self.excused && ["55000", "42P01", "42703", "23503"].contains(&code)
    }

    /// Ends all faults of servers and links.
    pub(super) fn mend_all(&mut self) -> Result<()> {
        self.stage.clear_up(&mut self.lasting, &self.outages, true)
    }

    /// Resumes splits that failed because of a name that has been changed back.
    fn resume_failed(&mut self) -> Result<()> {
        let failed: Vec<SplitView> = self.look()?.into_iter().filter(|split| split.is_failed).collect();
        for split in failed {
            self.resume(&split)?;
            self.note(format!("it had failed: {:?}", split.error));
        }
        Ok(())
    }

    /// Resumes a split, or rolls it back if its error says so. Partitions that only one side has are remarks
    /// of the check, and are accepted.
    pub(super) fn resume(&mut self, SplitView { id, phase, error, .. }: &SplitView) -> Result<()> {
        if error.as_ref().is_some_and(|(_, message)| message.contains(COPIED_BEFORE)) {
            return self.operate_unless(&format!("SELECT shard_split_rollback({id})"), "55000").map(drop);
        }
        let may_lack = error.as_ref().is_none_or(|(_, message)| message.contains(LACKS_PARTITION));
        if *phase == Phase::Planning && may_lack {
            // A worker may have started the split meanwhile. Then the check no longer applies.
            self.operate_unless(
                &format!(
                    "SELECT shard_split_accept({id}, check_name, object) FROM shard_split_check({id})
                      WHERE NOT ok AND detail LIKE '%{LACKS_PARTITION}%'"
                ),
                "55000",
            )?;
        }
        self.operate(&format!("SELECT shard_split_resume({id})"))
    }

    /// Returns for each key where the master routes it: the write shard, and whether it is settled.
    pub(super) fn routed(&mut self) -> Result<Vec<Option<(usize, bool)>>> {
        let mut entries = Vec::new();
        for space in Space::ALL {
            let query =
                "SELECT key, bucket, lower, upper, write_shard, status = 'active' FROM shard_entries($1)";
            entries.push(self.ask_master(|master| master.query(query, &[&space.name()]))?);
        }
        let stage = &self.stage;
        let route = |key: &super::keys::Key| {
            let space = Space::ALL.iter().position(|space| *space == key.space)?;
            let row = entries[space].iter().find(|row| match key.space {
                Space::Directory => row.get::<_, &str>(0) == key.text,
                Space::Hash => row.get::<_, i32>(1) == key.bucket().map_or(-1, |bucket| bucket as i32),
                Space::Range => {
                    let (lower, upper): (Option<&str>, Option<&str>) = (row.get(2), row.get(3));
                    lower.is_none_or(|lower| lower <= key.text.as_str())
                        && upper.is_none_or(|upper| key.text.as_str() < upper)
                }
            })?;
            Some((stage.shard_named(row.get(4))?, row.get(5)))
        };
        Ok(stage.keys.iter().map(route).collect())
    }

    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(problem) = self.writers.shared.problem() {
            return Err(problem.into());
        }
        let mut keys: Vec<KeyIndex> = (0..self.stage.keys.len()).collect();
        for _ in 0..50 {
            keys = self.check_keys(keys)?;
            if keys.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the answers that each shard must give for each of the keys.
    fn expected(&mut self, keys: &[KeyIndex]) -> Result<Vec<[Expect; SHARDS]>> {
        self.look()?;
        let model = &self.model;
        Ok(keys.iter().map(|key| std::array::from_fn(|shard| model.expect(shard, *key))).collect())
    }

    /// Checks that each key is writable where it is routed, and only there. Returns the keys whose expected
    /// answer changed meanwhile, because nothing is known about the time in between.
    fn check_keys(&mut self, keys: Vec<KeyIndex>) -> Result<Vec<KeyIndex>> {
        let before = self.expected(&keys)?;
        let mut said: Vec<[ProbeAnswer; SHARDS]> = Vec::new();
        for key in &keys {
            said.push(std::array::from_fn(|shard| self.prober.ask(&self.stage, shard, *key)));
        }
        let routed = self.routed()?;
        let after = self.expected(&keys)?;
        let mut again = Vec::new();
        for (at, (key, said)) in keys.into_iter().zip(said).enumerate() {
            if before[at] != after[at] {
                again.push(key);
                continue;
            }
            self.check_route(key, routed[key])?;
            for (shard, said) in said.into_iter().enumerate() {
                self.check_said((shard, key), before[at][shard], said)?;
            }
        }
        Ok(again)
    }

    /// The master must route a key where its splits and assignments have brought it. During a cutover, a
    /// client that asks for a write route waits, but not for long.
    fn check_route(&mut self, key: KeyIndex, routed: Option<(usize, bool)>) -> Result<()> {
        let model = self.model.routes[key];
        let name = self.stage.keys[key].text.clone();
        let began = Instant::now();
        let mut routed = routed;
        loop {
            match routed {
                Some((_, false)) => {}
                settled if settled.map(|(shard, _)| shard) == self.model.routes[key] => return Ok(()),
                // A split has just decided.
                _ if self.look()?.is_empty() || self.model.routes[key] != model => return Ok(()),
                settled => {
                    // The route may have been read before the model changed, so it is read once more.
                    let now = self.routed()?[key];
                    if now != settled {
                        routed = now;
                        continue;
                    }
                    return Err(format!("\"{name}\" is routed to {settled:?}, not to {model:?}").into());
                }
            }
            let places: Vec<Place> = (0..SHARDS).flat_map(|shard| self.places_of(shard)).collect();
            if self.outages.lasts(&places) && began.elapsed() > BOUND {
                return Ok(());
            }
            if self.outages.is_too_long(&places, began) {
                return Err(format!("no route for a write of \"{name}\" for {:?}", began.elapsed()).into());
            }
            std::thread::sleep(Duration::from_millis(20)); // between two looks
            self.look()?;
            routed = self.routed()?[key];
        }
    }

    fn check_said(
        &mut self,
        (shard, key): (usize, KeyIndex),
        expect: Expect,
        said: ProbeAnswer,
    ) -> Result<()> {
        let what = || format!("\"{}\" on shard {shard}", self.stage.keys[key].text);
        match (expect, said) {
            (_, ProbeAnswer::Other(text)) => Err(format!("{}: {text}", what()).into()),
            (Expect::Served, ProbeAnswer::Retry(_) | ProbeAnswer::Unreachable(_)) => {
                self.await_served(shard, key)
            }
            (Expect::Refused, ProbeAnswer::Writable) => {
                let route = self.model.routes[key];
                Err(format!("{} is writable, but routed to {route:?}", what()).into())
            }
            (Expect::Free, ProbeAnswer::Retry(text)) => self.await_free(shard, key, &text),
            (_, ProbeAnswer::Writable | ProbeAnswer::Retry(_) | ProbeAnswer::Unreachable(_)) => Ok(()),
        }
    }

    fn places_of(&self, shard: usize) -> Vec<Place> {
        let server = self.stage.server_of(shard);
        vec![Place::Master, Place::Server(server), Place::Link(server)]
    }

    /// Returns the places whose outages excuse a refusal of a key by its own shard.
    fn excuses(&self, shard: usize, key: KeyIndex) -> Vec<Place> {
        let mut places = self.places_of(shard);
        // After the decision, the target must be told before it opens.
        let decided = self.model.holder(key).filter(|split| split.seen.phase == Phase::Completed);
        if let Some(split) = decided {
            places.extend(self.places_of(split.source).into_iter().chain(self.places_of(split.target)));
        }
        places
    }

    fn await_served(&mut self, shard: usize, key: KeyIndex) -> Result<()> {
        let places = self.excuses(shard, key);
        let (stage, outages, model) = (&self.stage, &self.outages, &self.model);
        let is_routed = || {
            // A cutover may decide meanwhile. Then another shard must serve the key.
            let mut master = wait::until("the master", LIMIT, || Ok(stage.cluster.superuser().ok()))?;
            let mut now = model.clone();
            now.observe(&seen(&mut master).map_err(Error::from)?);
            Ok(now.routes[key] == Some(shard))
        };
        let outcome = self.prober.await_writable(stage, outages, (shard, key), &places, is_routed);
        outcome.map_err(|e| e.context(&format!("\"{}\" on its shard {shard}", stage.keys[key].text)))
    }

    /// A shard must not refuse a key that does not belong to it, at the latest when workers have cleaned up.
    fn await_free(&mut self, shard: usize, key: KeyIndex, text: &str) -> Result<()> {
        let places = self.places_of(shard);
        let (stage, outages, model) = (&self.stage, &self.outages, &self.model);
        let is_free = || {
            let mut master = wait::until("the master", LIMIT, || Ok(stage.cluster.superuser().ok()))?;
            let mut now = model.clone();
            now.observe(&seen(&mut master).map_err(Error::from)?);
            Ok(now.expect(shard, key) == Expect::Free)
        };
        let outcome = self.prober.await_writable(stage, outages, (shard, key), &places, is_free);
        outcome.map_err(|e| {
            let name = &stage.keys[key].text;
            e.context(&format!("\"{name}\" on shard {shard}, where nothing should refuse it ({text})"))
        })
    }

    /// Compares the expected rows with those on the shards, while nobody writes.
    pub(super) fn compare(&mut self) -> Result<()> {
        let shared = self.writers.shared.clone();
        let _quiet = shared.quiet();
        for _ in 0..50 {
            self.look()?;
            // This is read before the shards, because a split that ends meanwhile still had its rows there.
            let is_free: Vec<bool> =
                (0..self.stage.keys.len()).map(|key| self.model.holder(key).is_none()).collect();
            let before = self.routed()?;
            let held =
                (0..SHARDS).map(|shard| comparison::held(&self.stage, shard)).collect::<Result<Vec<_>>>();
            let Ok(held) = held else { continue };
            self.look()?;
            if before != self.routed()? {
                continue;
            }
            for (key, route) in before.into_iter().enumerate() {
                if let Some((route, true)) = route {
                    self.compare_with_book(key, route, &held[route][&key])?;
                    self.compare_elsewhere(key, route, &held, is_free[key])?;
                }
            }
            return Ok(());
        }
        Ok(())
    }

    /// On the shard to which a key is routed, its rows must be those that were acknowledged.
    fn compare_with_book(&self, key: KeyIndex, route: usize, held: &[Rows; 2]) -> Result<()> {
        let (name, model) = (&self.stage.keys[key].text, self.model.routes[key]);
        if model != Some(route) {
            return Err(format!("\"{name}\" is routed to {route}, not to {model:?}").into());
        }
        let mut books = self.writers.shared.books();
        let Some(book) = books.get_mut(&key) else { return Ok(()) };
        let [parents, children] = held;
        for (table, rows) in self.stage.keys[key].space.tables().into_iter().zip(held) {
            if let Some(difference) = book.clone().settle(rows) {
                return Err(format!("{table} of \"{name}\" on its shard {route}: {difference}").into());
            }
        }
        if parents != children {
            return Err(format!("the tables of \"{name}\" differ on its shard {route}").into());
        }
        book.settle(parents);
        Ok(())
    }

    /// While no split moves it, a key has rows on its own shard alone.
    fn compare_elsewhere(
        &self,
        key: KeyIndex,
        route: usize,
        held: &[comparison::Held],
        is_free: bool,
    ) -> Result<()> {
        for (shard, held) in held.iter().enumerate().filter(|(shard, _)| *shard != route) {
            let is_empty = held[&key].iter().all(Rows::is_empty);
            if is_free && !is_empty && !self.may_keep(shard, key) {
                let name = &self.stage.keys[key].text;
                return Err(
                    format!("rows of \"{name}\" on shard {shard}, but it is routed to {route}").into()
                );
            }
        }
        Ok(())
    }

    /// A target that was given up as lost keeps the copied rows.
    fn may_keep(&self, shard: usize, key: KeyIndex) -> bool {
        self.model.splits.iter().any(|s| s.has_lost_target && s.target == shard && s.keys.contains(&key))
    }

    pub(super) fn operate(&mut self, call: &str) -> Result<()> {
        self.note(call.to_owned());
        self.ask_master(|master| master.batch_execute(call)).map_err(|e| e.context(call))
    }

    /// Makes a call. Returns false if it was refused with this SQLSTATE.
    pub(super) fn operate_unless(&mut self, call: &str, code: &str) -> Result<bool> {
        match self.operate(call) {
            Err(error) if error.sqlstate() == Some(code) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Describes the state of everything, for the report of a failure.
    pub fn describe(&mut self) -> String {
        let query = "SELECT format('split %s: %s %s -> %s, phase %s, goal %s, step %s, %s, paused %s, waiting for %s, error %s %s, keys %s',
                            p.id, p.keyspace, p.source_shard, p.target_shard, p.phase, p.goal, p.cutover_step, p.activity, p.paused,
                            m.waiting_for, p.error_code, p.error_message, p.tenants)
                            || coalesce((SELECT string_agg(format(E'\\n    %s %s -> %s %s', at::time, from_phase, to_phase, detail), '' ORDER BY at)
                                           FROM (SELECT * FROM shard_split_events(p.id) ORDER BY at DESC LIMIT 12) e), '')
                       FROM shardmaster.split_plan p JOIN shard_split_metrics() m ON m.split_id = p.id
                      ORDER BY (p.finished_at IS NULL), p.id DESC LIMIT 12";
        let splits: Vec<String> = match self.ask_master(|master| master.query(query, &[])) {
            Ok(rows) => rows.iter().map(|row| row.get(0)).collect(),
            Err(error) => vec![format!("no splits: {error}")],
        };
        format!("{}\n{}", self.trail.join("\n"), splits.join("\n"))
    }
}

/// Returns the splits as the master shows them.
pub(super) fn seen(master: &mut Client) -> std::result::Result<Vec<SplitView>, postgres::Error> {
    let query =
        // A reverse split that was not requested is part of its split.
        "SELECT id, phase, goal, cutover_step = 'moved', activity = 'failed', finished_at IS NOT NULL,
                error_code, error_message, reverse_of,
                EXISTS (SELECT 1 FROM shardmaster.split_plan b
                         WHERE b.reverse_of = p.id AND b.started_at IS NOT NULL AND b.phase NOT IN ('completed', 'rolled_back'))
           FROM shardmaster.split_plan p WHERE reverse_of IS NULL OR started_at IS NOT NULL ORDER BY id";
    let rows = master.query(query, &[])?;
    let split = |row: &postgres::Row| {
        let error = row.get::<_, Option<String>>(6).zip(row.get::<_, Option<String>>(7));
        Some(SplitView {
            id: row.get(0),
            phase: Phase::named(row.get(1))?,
            goal: row.get(2),
            is_moved: row.get(3),
            is_failed: row.get(4),
            is_finished: row.get(5),
            error,
            reverse_of: row.get(8),
            is_taken_back: row.get(9),
        })
    };
    Ok(rows.iter().filter_map(split).collect())
}
