//! The rows of the matrix: what happens to a server, or to a link.

pub use crate::matrix::Place;

impl Place {
    /// The index among the cluster's servers, or `None` for the master.
    pub fn server(self) -> Option<usize> {
        match self {
            Place::Source => Some(0),
            Place::Target => Some(1),
            Place::Master => None,
        }
    }
}

/// The link between the master and a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Source,
    Target,
}

impl Link {
    pub fn server(self) -> usize {
        match self {
            Link::Source => 0,
            Link::Target => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disaster {
    /// The database is restored from a dump on a new server.
    Dump(Place),
    /// The disk is set back to a snapshot.
    Disk(Place),
    /// An asynchronous standby takes the server's place, without the last writes.
    Standby(Place),
    /// The server does not come back.
    Gone(Place),
    /// All processes of the server stop where they are, for longer than a cutover may take.
    Hung(Place),
    /// The disk has no room for any table to grow.
    Full(Place),
    /// Connections end, and new ones are refused.
    Cut(Link),
    /// Nothing comes through, and neither side notices.
    Silent(Link),
    /// Everything takes longer in both directions, and this does not end.
    Slow(Link),
    /// One connection falls silent. Others and new ones do not.
    OneLost(Link),
}

use Disaster::*;

/// All disasters, the riskiest first.
pub const DISASTERS: [Disaster; 26] = [
    Hung(Place::Target),
    Hung(Place::Source),
    Hung(Place::Master),
    Silent(Link::Target),
    Silent(Link::Source),
    OneLost(Link::Source),
    OneLost(Link::Target),
    Cut(Link::Target),
    Cut(Link::Source),
    Disk(Place::Target),
    Disk(Place::Source),
    Disk(Place::Master),
    Standby(Place::Target),
    Standby(Place::Source),
    Standby(Place::Master),
    Gone(Place::Target),
    Gone(Place::Source),
    Gone(Place::Master),
    Full(Place::Target),
    Full(Place::Source),
    Full(Place::Master),
    Dump(Place::Target),
    Dump(Place::Source),
    Dump(Place::Master),
    Slow(Link::Source),
    Slow(Link::Target),
];

impl Disaster {
    /// Returns the server that it strikes. `None` means the master, or a link.
    pub fn place(self) -> Option<Place> {
        match self {
            Dump(place) | Disk(place) | Standby(place) | Gone(place) | Hung(place) | Full(place) => {
                Some(place)
            }
            Cut(_) | Silent(_) | Slow(_) | OneLost(_) => None,
        }
    }

    pub fn link(self) -> Option<Link> {
        match self {
            Cut(link) | Silent(link) | Slow(link) | OneLost(link) => Some(link),
            Dump(_) | Disk(_) | Standby(_) | Gone(_) | Hung(_) | Full(_) => None,
        }
    }

    /// Whether a server comes back in an earlier state.
    pub fn forgets(self) -> bool {
        matches!(self, Dump(_) | Disk(_) | Standby(_))
    }
}
