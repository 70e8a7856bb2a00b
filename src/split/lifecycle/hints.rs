//! Hints of the table of requests, as an operator reads them.

use crate::catalog::reverse_split;
use crate::catalog::split_state::row::SplitState;
use crate::error::Failure;
use crate::words::of_split;

/// Fills in the numbers of the split and, for a reverse split, of the one that it reverses.
pub fn of(id: i64, state: &SplitState, hint: &str) -> Result<String, Failure> {
    if let Some(back) = reverse_split::of(id)?.filter(|back| state.finished && back.is_decided()) {
        let text = format!(
            "Split {} has taken it back. Plan its keys again from where they are; shard_entries() shows that.",
            back.id
        );
        return Ok(text);
    }
    let there = reverse_split::there(id).unwrap_or_default().to_string();
    Ok(of_split(hint, id).replace("{there}", &there))
}
