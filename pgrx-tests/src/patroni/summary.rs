//! The results of a run: the numbers, and whether the promises hold.

use super::heartbeat::{HeartbeatReport, Span};
use super::kills::{Kill, KillMethod};
use super::operator::OperatorReport;
use super::site::NAMES;
use super::{CUTOVER_TIMEOUT, LOOP_WAIT, REMOTE_TIMEOUT, TTL};
use crate::records::{self, Fact, milliseconds};
use crate::workload::Report;
use std::fmt;
use std::time::Duration;

/// The time of a promotion, and with one standby also of the old leader's crash recovery and rewind. Each
/// takes its time on a busy machine, and none of it is caused by a split.
const PROMOTION: Duration = Duration::from_secs(60);
/// The grace beyond the deadlines.
const GRACE: Duration = Duration::from_secs(3);
/// The longest pause between two attempts of a worker.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// A split that made no progress for longer than this gets a line.
const NOTABLE: Duration = Duration::from_secs(4);

pub struct Summary {
    pub kills: Vec<Kill>,
    pub beats: HeartbeatReport,
    pub done: OperatorReport,
    pub report: Report,
    /// Times in which no write of a client came through.
    pub gaps: Vec<Span>,
}

/// The longest of some times, and the longest that remains of each without outages.
struct Longest {
    whole: Duration,
    beyond: Duration,
}

impl Summary {
    /// Returns the promises that do not hold.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut must = |holds: bool, what: String| {
            if !holds {
                broken.push(what);
            }
        };
        must(self.beats.lost == 0, format!("Patroni forgot acknowledged commits: {:?}", self.beats.losses));
        must(self.report.is_clean(), format!("{}", self.report));
        for (how, time) in self.failovers() {
            // A pair that needs a standby for an acknowledgement needs both servers.
            let away = how.back_after().unwrap_or_default().max(Duration::from_secs(TTL + LOOP_WAIT));
            must(time <= away + PROMOTION, format!("after a kill of {how} nobody wrote for {time:?}"));
        }
        let (client, split) = (self.clients(), self.splits());
        let limit = CUTOVER_TIMEOUT + REMOTE_TIMEOUT + GRACE;
        must(client.beyond <= limit, format!("a client waited {:?} beyond failovers", client.beyond));
        let limit = limit + MAX_BACKOFF;
        must(split.beyond <= limit, format!("a split stood still {:?} beyond failovers", split.beyond));
        must(self.done.stuck.is_none(), format!("the operator came to no end: {:?}", self.done.stuck));
        must(self.done.failed.is_empty(), format!("splits stopped: {:?}", self.done.failed));
        must(self.done.refused.is_empty(), format!("calls were refused: {:?}", self.done.refused));
        broken
    }

    /// Writes the record for docs/internals/reliability.md.
    pub fn keep(&self) {
        let (done, report, clients) = (&self.done, &self.report, self.clients());
        let failover = self.failovers().into_iter().map(|(_, time)| time).max().unwrap_or_default();
        let facts: [Fact<'_>; 11] = [
            ("kills", &self.kills.len()),
            ("forward", &done.forward),
            ("reversed", &done.reversed),
            ("rolled_back", &done.rolled_back),
            ("acknowledged", &report.acknowledged),
            ("lost", &report.lost),
            ("doubled", &report.doubled),
            ("misplaced", &report.misplaced),
            ("failover", &milliseconds(failover)),
            ("stall", &milliseconds(clients.whole)),
            ("beyond", &milliseconds(clients.beyond)),
        ];
        records::keep("failovers", &facts);
    }

    fn outages(&self) -> Vec<Span> {
        self.beats.outages.iter().flatten().copied().collect()
    }

    fn clients(&self) -> Longest {
        self.longest(self.gaps.iter())
    }

    fn splits(&self) -> Longest {
        self.longest(self.done.stalls.iter().map(|(span, _)| span))
    }

    /// Returns the splits that made no progress for long after their servers were back.
    fn notable_stalls(&self) -> Vec<(Duration, &str)> {
        let outages = self.outages();
        let beyond = |span: &Span| span.length().saturating_sub(span.covered_by(&outages));
        let all = self.done.stalls.iter().map(|(span, what)| (beyond(span), what.as_str()));
        all.filter(|(beyond, _)| *beyond > NOTABLE).collect()
    }

    fn longest<'a>(&self, spans: impl Iterator<Item = &'a Span> + Clone) -> Longest {
        let outages = self.outages();
        let beyond = |span: &Span| span.length().saturating_sub(span.covered_by(&outages));
        Longest {
            whole: spans.clone().map(Span::length).max().unwrap_or_default(),
            beyond: spans.map(beyond).max().unwrap_or_default(),
        }
    }

    /// Returns how long each pair took no writes after a kill.
    fn failovers(&self) -> Vec<(KillMethod, Duration)> {
        let of = |kill: &Kill| {
            let outages = &self.beats.outages[kill.pair];
            let outage = outages.iter().find(|span| span.to > kill.at)?;
            Some((kill.how, outage.to.saturating_duration_since(kill.at)))
        };
        self.kills.iter().filter_map(of).collect()
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        let mut line = |name: &str, value: String| writeln!(f, "{name:<38}{value}");
        let kills = |pair: usize| {
            let of: Vec<&Kill> = self.kills.iter().filter(|kill| kill.pair == pair).collect();
            let at_points = of.iter().filter(|kill| kill.point.is_some()).count();
            format!("{} {} ({at_points} at named points)", NAMES[pair], of.len())
        };
        line("kills of leaders", (0..NAMES.len()).map(kills).collect::<Vec<_>>().join(", "))?;
        for how in KillMethod::ALL {
            let mut times: Vec<Duration> =
                self.failovers().into_iter().filter(|(of, _)| *of == how).map(|(_, time)| time).collect();
            times.sort_unstable();
            if let (Some(least), Some(most)) = (times.first(), times.last()) {
                let middle = times[times.len() / 2];
                let value = format!("{} .. {} .. {}", seconds(*least), seconds(middle), seconds(*most));
                line(&format!("no writes after a kill of {how}"), value)?;
            }
        }
        let done = &self.done;
        line(
            "splits forward, reversed, rolled back",
            format!("{}, {}, {}", done.forward, done.reversed, done.rolled_back),
        )?;
        line("cutovers given up and tried again", done.given_up.to_string())?;
        line(
            "acknowledged by pairs themselves, lost",
            format!("{}, {}", self.beats.acknowledged, self.beats.lost),
        )?;
        for (what, longest) in [("client", self.clients()), ("split", self.splits())] {
            let value = format!("{}, beyond failovers {}", seconds(longest.whole), seconds(longest.beyond));
            line(&format!("longest stall of a {what}"), value)?;
        }
        for (beyond, what) in self.notable_stalls() {
            line("  stood still beyond failovers", format!("{}: {what}", seconds(beyond)))?;
        }
        let r = &self.report;
        writeln!(
            f,
            "patroni: {} kills; splits {} forward, {} reversed, {} rolled back; {} acknowledged, {} lost, {} doubled, {} misplaced; longest stall of a client {}, of a split {}; failovers up to {}",
            self.kills.len(),
            done.forward,
            done.reversed,
            done.rolled_back,
            r.acknowledged,
            r.lost,
            r.doubled,
            r.misplaced,
            seconds(self.clients().whole),
            seconds(self.splits().whole),
            seconds(self.failovers().into_iter().map(|(_, time)| time).max().unwrap_or_default())
        )
    }
}
