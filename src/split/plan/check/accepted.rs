//! Remarks that the split's operator has accepted.

use crate::catalog::split_accepted::{self, Accepted};
use crate::clean;
use crate::remote::quote::literal;
use crate::split::finding::Finding;

/// Marks the accepted remarks as well; the others show how to accept them. An accepted remark that is not found any
/// more is reported once.
pub fn settle(id: i64, findings: &mut Vec<Finding>) {
    let accepted = split_accepted::of(id);
    let is_of = |accepted: &Accepted, finding: &Finding| {
        accepted.check == finding.name && finding.object.as_ref() == Some(&accepted.object)
    };
    for finding in findings.iter_mut() {
        let Some(object) = &finding.object else { continue };
        let known = accepted.iter().find(|accepted| is_of(accepted, finding));
        finding.ok = known.is_some();
        finding.hint = Some(match known {
            Some(Accepted { by, .. }) => clean::printable(&format!("Accepted by {by}.")),
            None => clean::printable(&format!(
                "If that is intended: SELECT shard_split_accept({id}, {}, {}).",
                literal(&finding.name),
                literal(object)
            )),
        });
    }
    let unfound: Vec<&Accepted> =
        accepted.iter().filter(|accepted| !findings.iter().any(|finding| is_of(accepted, finding))).collect();
    let notes = unfound.into_iter().map(|Accepted { check, object, .. }| {
        let hint = "The check reports nothing of that name. If it is still listed, copy its object.";
        Finding::note("accepted remarks", format!("{check}: {object}"), hint)
    });
    let notes: Vec<Finding> = notes.collect();
    findings.extend(notes);
}
