//! The stages of a split as a timeline: each is as wide as it was long.

use super::html::{Html, tag};
use super::units::{duration, moment};

/// In seconds since 1970; `None` if the split has not reached the stage.
pub struct Times {
    pub planned: f64,
    /// Both sides are installed.
    pub captured: Option<f64>,
    pub copying: Option<f64>,
    pub copied: Option<f64>,
    pub cut_over: Option<f64>,
    /// Finished, or rolled back.
    pub ended: Option<f64>,
}

#[derive(Debug, PartialEq)]
struct TimelineStage {
    name: &'static str,
    class: &'static str,
    from: f64,
    to: f64,
    is_open: bool,
}

/// Returns the stages that the split has reached. A stage whose end is unknown lasts until the next known moment.
fn stages(times: &Times, now: f64) -> Vec<TimelineStage> {
    let begins = [
        ("planned", "s0", Some(times.planned)),
        ("installed", "s1", times.captured),
        ("copying", "s2", times.copying),
        ("following", "s3", times.copied),
        ("completed", "s4", times.cut_over),
    ];
    let known: Vec<(&'static str, &'static str, f64)> =
        begins.into_iter().filter_map(|(name, class, at)| Some((name, class, at?))).collect();
    let end = |next: usize| known.get(next).map(|stage| stage.2).or(times.ended);
    let stage = |(at, (name, class, from)): (usize, &(&'static str, &'static str, f64))| TimelineStage {
        name,
        class,
        from: *from,
        to: end(at + 1).unwrap_or(now).max(*from),
        is_open: end(at + 1).is_none(),
    };
    known.iter().enumerate().map(stage).collect()
}

pub fn draw(times: &Times, phase: &str, now: f64) -> Html {
    let stages = stages(times, now);
    let all = stages.last().map_or(0.0, |stage| stage.to) - times.planned;
    let part = |stage: &TimelineStage| {
        // Short stages remain visible.
        let width = format!("flex-grow:{:.4}", (stage.to - stage.from) / all.max(1e-3) + 0.02);
        tag("i").class(stage.class).with("style", width).done()
    };
    let line =
        tag("div").class("timeline").with("aria-hidden", "true").put(stages.iter().map(part).collect());
    let item = |stage: &TimelineStage| {
        let lasted = duration(stage.to - stage.from);
        let lasted = if stage.is_open { format!("for {lasted} so far") } else { lasted };
        tag("li")
            .put(tag("i").class(stage.class).with("aria-hidden", "true").done())
            .put(tag("b").say(stage.name).done())
            .say(format!(" {lasted} "))
            .put(tag("span").class("quiet").say(format!("from {}", moment(stage.from))).done())
            .done()
    };
    let mut list: Html = stages.iter().map(item).collect();
    if let Some(ended) = times.ended {
        let what = match phase {
            "rolled_back" => "rolled back",
            "taken back" => phase,
            _ => "finished",
        };
        let at = tag("span").class("quiet").say(moment(ended)).done();
        let mark = tag("i").class("s5").with("aria-hidden", "true").done();
        list.put(tag("li").put(mark).put(tag("b").say(what).done()).say(" ").put(at).done());
    }
    let mut html = line.done();
    html.put(tag("ol").class("stages").put(list).done());
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_lasts_until_the_next_one_that_is_known() {
        let times = Times {
            planned: 1.0,
            captured: Some(3.0),
            copying: None,
            copied: None,
            cut_over: None,
            ended: None,
        };
        let shown: Vec<(&str, f64, bool)> =
            stages(&times, 10.0).iter().map(|stage| (stage.name, stage.to, stage.is_open)).collect();
        assert_eq!(shown, [("planned", 3.0, false), ("installed", 10.0, true)]);
    }

    #[test]
    fn the_last_stage_ends_with_the_split() {
        let times = Times {
            planned: 1.0,
            captured: Some(2.0),
            copying: Some(3.0),
            copied: Some(4.0),
            cut_over: Some(5.0),
            ended: Some(6.0),
        };
        let last = stages(&times, 10.0).pop().unwrap();
        assert_eq!((last.name, last.to, last.is_open), ("completed", 6.0, false));
    }
}
