//! Decides which node handles a message of a session.

use super::{Incarnation, Liveness, Members};
use crate::jsonrpc::RequestId;
use crate::questions::Question;

/// The facts that decide where a call of a session runs.
#[derive(Clone, Copy, Debug)]
pub struct SessionPlace<'a> {
    /// This node.
    pub here: &'a Incarnation,
    /// Whether a process holds state of the session: in its handler, or because the session is bound to a connection
    /// (LEG-02).
    pub holds_state: bool,
    /// The node that holds the state.
    pub owner: Option<&'a Incarnation>,
    /// Whether this node is shutting down.
    pub is_draining: bool,
    /// Whether another node has forwarded the call here.
    pub is_forwarded: bool,
    /// Nodes that have sent this call back although nobody owns its session: they are shutting down, too.
    pub avoided: &'a [Incarnation],
    /// A random number that distributes the calls of a node that is shutting down.
    pub random: u64,
}

/// Where a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallPlace {
    /// On this node.
    Here,
    /// On this live node.
    Forward(Incarnation),
    /// On this node, after it has claimed the session from its dead owner, or without an owner. Then route again.
    Claim(Option<Incarnation>),
    /// Ask the store whether this node is alive. Then route again.
    Check(Incarnation),
    /// The call was forwarded here, and another node has the session now, or this node is shutting down. If the newest record
    /// says so, too, the node that received the call routes it again. So two nodes with different records never pass a call
    /// back and forth.
    Moved,
    /// This node is shutting down, and no other node takes the call.
    NoNode,
}

impl SessionPlace<'_> {
    /// Decides where a call runs.
    pub fn call(&self, members: &Members) -> CallPlace {
        match self.owner.filter(|_| self.holds_state) {
            Some(owner) if owner == self.here => CallPlace::Here,
            Some(owner) => match members.liveness(owner) {
                Liveness::Unknown => CallPlace::Check(owner.clone()),
                Liveness::Alive if self.is_forwarded => CallPlace::Moved,
                Liveness::Alive => CallPlace::Forward(owner.clone()),
                Liveness::Dead => self.unowned(members, CallPlace::Claim(Some(owner.clone()))),
            },
            None if self.holds_state => self.unowned(members, CallPlace::Claim(None)),
            None => self.unowned(members, CallPlace::Here),
        }
    }

    /// A draining node starts nothing new. A call that another node has sent could outlast the drain, so it goes back.
    fn unowned(&self, members: &Members, here: CallPlace) -> CallPlace {
        if !self.is_draining {
            return here;
        }
        if self.is_forwarded {
            return CallPlace::Moved;
        }
        match any_other_node(self.here, self.avoided, members, self.random) {
            Some(node) => CallPlace::Forward(node),
            None => CallPlace::NoNode,
        }
    }
}

/// A live node other than `here` and those in `avoided`. It takes a request that reaches a node which is shutting down.
pub fn any_other_node(
    here: &Incarnation,
    avoided: &[Incarnation],
    members: &Members,
    random: u64,
) -> Option<Incarnation> {
    let is_other = |node: &&Incarnation| *node != here && !avoided.contains(node);
    let mut others: Vec<_> = members.live().filter(is_other).collect();
    others.sort();
    let at = random.checked_rem(others.len() as u64)?;
    others.get(at as usize).map(|node| Incarnation::clone(node))
}

/// The destination of a message for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePlace {
    /// To this node.
    Here,
    /// To another live node.
    Forward(Incarnation),
    /// Ask the store whether this node is alive. Then route again.
    Check(Incarnation),
    /// The node is dead.
    Dead,
}

/// The node that a retry should reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryNode {
    /// This node has parked the call. No other one can continue it.
    Parked(Incarnation),
    /// A process behind this node wrote the state of the retry, and may keep the rest of the call in its memory. The state may
    /// also be complete, so any other node can try.
    Relayed(Incarnation),
}

impl RetryNode {
    /// The node.
    pub fn node(&self) -> &Incarnation {
        match self {
            RetryNode::Parked(node) | RetryNode::Relayed(node) => node,
        }
    }
}

/// The destination of a retry whose state names `node`.
pub fn place_of_retry(node: &Incarnation, here: &Incarnation, members: &Members) -> NodePlace {
    if node == here {
        return NodePlace::Here;
    }
    match members.liveness(node) {
        Liveness::Alive => NodePlace::Forward(node.clone()),
        Liveness::Unknown => NodePlace::Check(node.clone()),
        Liveness::Dead => NodePlace::Dead,
    }
}

/// The views of a session, for the answer to a question.
#[derive(Clone, Copy, Debug)]
pub struct SessionViews<'a> {
    /// This node.
    pub here: &'a Incarnation,
    /// The epoch of the view on this node.
    pub epoch: u64,
    /// The last epoch that any view of the session got.
    pub last_epoch: u64,
    /// All views that are not closed, with their epochs.
    pub views: &'a [(u64, Incarnation)],
}

/// The destination of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPlace {
    /// This node may have asked.
    Here,
    /// That node may have asked. It decides whether the answer is expected, late or unknown.
    Forward(Incarnation),
    /// Ask the store whether this node is alive. Then route again.
    Check(Incarnation),
    /// No question waits for it any more: accept and ignore it (S2C-04).
    Late,
    /// No node can have asked: refuse it (S2C-04).
    NeverAsked,
}

/// Decides the destination of an answer to the question `id`. The id contains the epoch of the view that asked, which
/// identifies the node.
pub fn place_of_answer(id: &RequestId, session: &SessionViews<'_>, members: &Members) -> AnswerPlace {
    let Some(question) = Question::parse(id) else {
        return AnswerPlace::NeverAsked;
    };
    let epoch = question.epoch();
    if epoch == session.epoch {
        return AnswerPlace::Here;
    }
    let view = session.views.iter().find(|(other, _)| *other == epoch);
    match view.map(|(_, node)| place_of_retry(node, session.here, members)) {
        Some(NodePlace::Forward(node)) => AnswerPlace::Forward(node),
        Some(NodePlace::Check(node)) => AnswerPlace::Check(node),
        _ if (1..=session.last_epoch).contains(&epoch) && question.number() > 0 => AnswerPlace::Late,
        _ => AnswerPlace::NeverAsked,
    }
}

/// The other nodes that get a cancellation or another notification of the client: the owner of the session, or all
/// nodes with a view. No index has the calls that answer with JSON, so every view looks for the call.
pub fn places_of_notification(
    session: &SessionPlace<'_>,
    views: &[(u64, Incarnation)],
    members: &Members,
) -> Vec<Incarnation> {
    let owner = session.owner.filter(|_| session.holds_state);
    let all: Vec<&Incarnation> = match owner {
        Some(owner) => vec![owner],
        None => views.iter().map(|(_, node)| node).collect(),
    };
    let mut places: Vec<Incarnation> = Vec::new();
    for node in all {
        let is_other = node != session.here && members.liveness(node) != Liveness::Dead;
        if is_other && !places.contains(node) {
            places.push(node.clone());
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Mono;

    fn node(n: u64) -> Incarnation {
        Incarnation::new(n, 0)
    }

    /// Node 1 is this node, 2 and 3 are alive, 4 is dead, 5 is unknown.
    fn members() -> Members {
        let mut members = Members::new();
        let _ = members.renewed(Mono::default(), &[node(1), node(2), node(3)], Mono::default());
        let _ = members.checked(&node(4), false, Mono::default());
        members
    }

    #[test]
    fn node_of_a_call_depends_on_the_owner() {
        let (here, nodes) = (node(1), [node(1), node(2), node(4), node(5)]);
        let [own, live, dead, unknown] = &nodes;
        let claim = |from: &Incarnation| CallPlace::Claim(Some(from.clone()));
        for (holds_state, owner, forwarded, draining, expected) in [
            (false, None, false, false, CallPlace::Here),
            (false, Some(live), false, false, CallPlace::Here),
            (true, Some(own), false, false, CallPlace::Here),
            (true, Some(own), true, true, CallPlace::Here),
            (true, None, false, false, CallPlace::Claim(None)),
            (true, Some(live), false, false, CallPlace::Forward(live.clone())),
            (true, Some(live), false, true, CallPlace::Forward(live.clone())),
            (true, Some(live), true, false, CallPlace::Moved),
            (true, Some(unknown), true, true, CallPlace::Check(unknown.clone())),
            (true, Some(dead), false, false, claim(dead)),
            (true, Some(dead), true, false, claim(dead)),
            (true, Some(dead), true, true, CallPlace::Moved),
            (true, None, true, true, CallPlace::Moved),
            (true, Some(dead), false, true, CallPlace::Forward(node(3))),
            (true, None, false, true, CallPlace::Forward(node(3))),
            (false, None, false, true, CallPlace::Forward(node(3))),
            (false, None, true, false, CallPlace::Here),
            (false, None, true, true, CallPlace::Moved),
        ] {
            let place = SessionPlace {
                here: &here,
                holds_state,
                owner,
                is_draining: draining,
                is_forwarded: forwarded,
                avoided: &[],
                random: 7,
            };
            let case = format!("{holds_state} {owner:?} forwarded {forwarded} draining {draining}");
            assert_eq!(place.call(&members()), expected, "{case}");
        }
        let mut alone = Members::new();
        let _ = alone.renewed(Mono::default(), std::slice::from_ref(&here), Mono::default());
        let place = SessionPlace {
            here: &here,
            holds_state: false,
            owner: None,
            is_draining: true,
            is_forwarded: false,
            avoided: &[],
            random: 7,
        };
        assert_eq!(place.call(&alone), CallPlace::NoNode);
    }

    /// T-38: a node that is shutting down asks each other node at most once.
    #[test]
    fn t_38_node_that_sent_a_call_back_is_avoided() {
        let (here, dead) = (node(1), node(4));
        for (avoided, expected) in [
            (vec![node(2)], CallPlace::Forward(node(3))),
            (vec![node(3)], CallPlace::Forward(node(2))),
            (vec![node(2), node(3)], CallPlace::NoNode),
        ] {
            for (random, owner) in [(0, None), (7, Some(&dead))] {
                let place = SessionPlace {
                    here: &here,
                    holds_state: true,
                    owner,
                    is_draining: true,
                    is_forwarded: false,
                    avoided: &avoided,
                    random,
                };
                assert_eq!(place.call(&members()), expected, "{avoided:?}");
            }
        }
    }

    #[test]
    fn s2c_04_answer_goes_to_the_node_that_asked() {
        let here = node(1);
        let views = [(3, node(4)), (4, node(1)), (5, node(2)), (7, node(1)), (8, node(5))];
        let session = SessionViews {
            here: &here,
            epoch: 7,
            last_epoch: 9,
            views: &views,
        };
        for (id, expected) in [
            ("s7-1", AnswerPlace::Here),
            ("s5-1", AnswerPlace::Forward(node(2))),
            ("s8-1", AnswerPlace::Check(node(5))),
            ("s3-1", AnswerPlace::Late),
            ("s4-1", AnswerPlace::Late), // an earlier view of this node
            ("s1-1", AnswerPlace::Late),
            ("s9-1", AnswerPlace::Late), // its view is closed
            ("s9-0", AnswerPlace::NeverAsked),
            ("s10-1", AnswerPlace::NeverAsked),
            ("s0-1", AnswerPlace::NeverAsked),
            ("s05-1", AnswerPlace::NeverAsked),
            ("1", AnswerPlace::NeverAsked),
        ] {
            assert_eq!(
                place_of_answer(&RequestId::from(id), &session, &members()),
                expected,
                "{id}"
            );
        }
    }

    #[test]
    fn mrtr_04_retry_of_a_parked_call_goes_to_its_node() {
        let (here, members) = (node(1), members());
        let place = |n| place_of_retry(&node(n), &here, &members);
        assert_eq!(place(1), NodePlace::Here);
        assert_eq!(place(2), NodePlace::Forward(node(2)));
        assert_eq!(place(4), NodePlace::Dead);
        assert_eq!(place(5), NodePlace::Check(node(5)));
    }

    #[test]
    fn can_01_cancellation_goes_to_the_owner_or_to_all_views() {
        let here = node(1);
        let views = [(1, node(1)), (2, node(2)), (3, node(4)), (4, node(2)), (5, node(5))];
        let (own, other) = (node(1), node(3));
        let places = |holds_state, owner| {
            let session = SessionPlace {
                here: &here,
                holds_state,
                owner,
                is_draining: false,
                is_forwarded: false,
                avoided: &[],
                random: 0,
            };
            places_of_notification(&session, &views, &members())
        };
        assert_eq!(places(false, None), [node(2), node(5)]);
        assert_eq!(places(true, Some(&other)), [node(3)]);
        assert!(places(true, Some(&own)).is_empty());
    }
}
