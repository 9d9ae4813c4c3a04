use super::*;

type Pool = PoolState<&'static str>;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn limits(max_children: usize) -> PoolLimits {
    PoolLimits {
        max_children,
        spare: 0,
        start_timeout: ms(30_000),
        evicts: true,
    }
}

fn session() -> Start<&'static str> {
    Start {
        kind: ChildKind::Session,
        principal: None,
        idle_limit: Some(ms(60_000)),
    }
}

fn lease(principal: Option<&'static str>) -> Start<&'static str> {
    Start {
        kind: ChildKind::Lease,
        principal,
        idle_limit: None,
    }
}

/// Asks for a place that must be granted at once.
fn granted(pool: &mut Pool, start: Start<&'static str>, now: Duration) -> ChildId {
    let waiter = pool.ask(start, now).expect("it may wait");
    match pool.decide(now)[..] {
        [Action::Grant(granted, child)] if granted == waiter => child,
        ref other => panic!("{other:?}"),
    }
}

/// A child that runs without need since `now`.
fn unneeded(pool: &mut Pool, start: Start<&'static str>, now: Duration) -> ChildId {
    let child = granted(pool, start, now);
    pool.started(child, now);
    child
}

#[test]
fn gw_21_least_recently_needed_child_makes_room_after_500_ms() {
    let mut pool = Pool::new(limits(2));
    let old = unneeded(&mut pool, session(), ms(0));
    let new = unneeded(&mut pool, session(), ms(100));
    pool.report(old, Need::UnneededSince(ms(300)));
    let waiter = pool.ask(session(), ms(400)).unwrap();
    assert_eq!(pool.decide(ms(599)), [], "neither was unneeded for 500 ms");
    assert_eq!(pool.decide(ms(600)), [Action::Stop(new, StopCause::MaxChildren)]);
    assert_eq!(pool.decide(ms(900)), [], "one stop is enough for one start");
    pool.release(new);
    assert!(matches!(pool.decide(ms(1000))[..], [Action::Grant(granted, _)] if granted == waiter));
}

#[test]
fn gw_21_start_is_refused_when_every_child_is_needed_for_a_second() {
    let mut pool = Pool::new(limits(1));
    let child = unneeded(&mut pool, session(), ms(0));
    pool.report(child, Need::Needed);
    let waiter = pool.ask(session(), ms(0)).unwrap();
    assert_eq!(pool.decide(ms(0)), []);
    assert_eq!(pool.decide(ms(999)), []);
    assert_eq!(pool.decide(ms(1000)), [Action::Refuse(waiter, Refused::Busy)]);
    // A moment without need begins the second anew.
    let waiter = pool.ask(session(), ms(2000)).unwrap();
    assert_eq!(pool.decide(ms(2000)), []);
    pool.report(child, Need::UnneededSince(ms(2500)));
    assert_eq!(pool.decide(ms(2900)), []);
    pool.report(child, Need::Needed);
    assert_eq!(pool.decide(ms(3000)), []);
    assert_eq!(pool.decide(ms(3999)), []);
    assert_eq!(pool.decide(ms(4000)), [Action::Refuse(waiter, Refused::Busy)]);
}

#[test]
fn gw_21_start_waits_at_most_the_start_timeout() {
    let mut pool = Pool::new(limits(1));
    granted(&mut pool, session(), ms(0)); // it starts for ever
    let waiter = pool.ask(session(), ms(0)).unwrap();
    assert_eq!(pool.decide(ms(29_999)), []);
    assert_eq!(pool.decide(ms(30_000)), [Action::Refuse(waiter, Refused::TimedOut)]);
}

#[test]
fn gw_21_starts_are_served_in_order() {
    let mut pool = Pool::new(limits(1));
    let child = granted(&mut pool, session(), ms(0));
    let waiters: Vec<_> = (1..4).map(|n| pool.ask(session(), ms(n)).unwrap()).collect();
    pool.withdraw(waiters[1]);
    pool.release(child);
    let first = match pool.decide(ms(10))[..] {
        [Action::Grant(waiter, child)] if waiter == waiters[0] => child,
        ref other => panic!("{other:?}"),
    };
    pool.release(first);
    assert!(matches!(pool.decide(ms(20))[..], [Action::Grant(waiter, _)] if waiter == waiters[2]));
}

#[test]
fn gw_21_server_that_never_hibernates_is_exempt() {
    let mut pool = Pool::new(PoolLimits {
        evicts: false,
        ..limits(1)
    });
    unneeded(
        &mut pool,
        Start {
            idle_limit: None,
            ..session()
        },
        ms(0),
    );
    let waiter = pool.ask(session(), ms(60_000)).unwrap();
    assert_eq!(pool.decide(ms(60_000)), []);
    assert_eq!(pool.decide(ms(61_000)), [Action::Refuse(waiter, Refused::Busy)]);
}

#[test]
fn gw_21_reserve_is_made_in_the_background() {
    let mut pool = Pool::new(limits(20));
    let children: Vec<_> = (0..20).map(|n| unneeded(&mut pool, session(), ms(n))).collect();
    let stops = [children[0], children[1]].map(|child| Action::Stop(child, StopCause::MaxChildren));
    assert_eq!(pool.decide(ms(1000)), stops);
    assert!(pool.next_decision(ms(1000)).is_some());
}

#[test]
fn gw_20_unneeded_child_is_stopped_after_its_limit() {
    let mut pool = Pool::new(limits(5));
    let child = unneeded(&mut pool, session(), ms(0));
    assert_eq!(pool.decide(ms(59_999)), []);
    assert_eq!(pool.decide(ms(60_000)), [Action::Stop(child, StopCause::Idle)]);
    assert_eq!(pool.decide(ms(61_000)), [], "once");
    pool.stop_declined(child);
    pool.report(child, Need::Needed);
    assert_eq!(pool.decide(ms(120_000)), []);
    pool.report(child, Need::UnneededSince(ms(120_000)));
    assert_eq!(pool.decide(ms(180_000)), [Action::Stop(child, StopCause::Idle)]);
}

#[test]
fn gw_18_leases_of_one_principal_have_half_of_the_places() {
    let mut pool = Pool::new(limits(4));
    for _ in 0..2 {
        let child = unneeded(&mut pool, lease(Some("ada")), ms(0));
        pool.report(child, Need::Needed);
    }
    let refused = pool.ask(lease(Some("ada")), ms(0)).unwrap();
    assert_eq!(pool.decide(ms(0)), []);
    granted(&mut pool, lease(Some("bob")), ms(0));
    granted(&mut pool, lease(None), ms(0));
    assert_eq!(pool.decide(ms(1000)), [Action::Refuse(refused, Refused::Busy)]);
}

#[test]
fn gw_18_principal_at_its_bound_replaces_its_own_lease() {
    let mut pool = Pool::new(limits(4));
    let oldest = unneeded(&mut pool, session(), ms(0));
    let own = unneeded(&mut pool, lease(Some("ada")), ms(100));
    let needed = unneeded(&mut pool, lease(Some("ada")), ms(100));
    pool.report(needed, Need::Needed);
    let waiter = pool.ask(lease(Some("ada")), ms(1000)).unwrap();
    assert_eq!(pool.decide(ms(1000)), [Action::Stop(own, StopCause::MaxChildren)]);
    pool.release(own);
    assert!(matches!(pool.decide(ms(1001))[..], [Action::Grant(granted, _)] if granted == waiter));
    pool.report(oldest, Need::Needed);
}

#[test]
fn gw_22_spare_is_claimed_and_replaced_while_there_is_room() {
    let mut pool = Pool::new(PoolLimits { spare: 1, ..limits(2) });
    let spare = match pool.decide(ms(0))[..] {
        [Action::StartSpare(spare)] => spare,
        ref other => panic!("{other:?}"),
    };
    pool.started(spare, ms(0));
    assert_eq!(
        pool.counts(),
        PoolCounts {
            running: 1,
            needed: 0,
            spare: 1
        }
    );
    let waiter = pool.ask(session(), ms(10)).unwrap();
    let next = match pool.decide(ms(10))[..] {
        [Action::Claim(claimer, claimed), Action::StartSpare(next)] => {
            assert_eq!((claimer, claimed), (waiter, spare));
            next
        }
        ref other => panic!("{other:?}"),
    };
    assert_eq!(pool.decide(ms(20)), [], "no room for a third child");
    // A spare that exits is replaced after its backoff.
    pool.exiting(next);
    pool.release(next);
    pool.spare_exited(ms(500));
    assert_eq!(pool.decide(ms(499)), []);
    assert!(matches!(pool.decide(ms(500))[..], [Action::StartSpare(_)]));
}

#[test]
fn gw_22_spare_is_not_stopped_for_a_start_that_can_claim_it() {
    let mut pool = Pool::new(PoolLimits { spare: 1, ..limits(3) });
    let Action::StartSpare(spare) = pool.decide(ms(0))[0] else {
        panic!()
    };
    pool.started(spare, ms(0));
    assert_eq!(pool.decide(ms(600_000)), [], "a spare has no idle limit");
}

#[test]
fn d13_waiting_starts_are_bounded() {
    let mut pool = Pool::new(limits(1));
    granted(&mut pool, session(), ms(0));
    for _ in 0..MAX_WAITING_STARTS {
        pool.ask(session(), ms(0)).unwrap();
    }
    assert_eq!(pool.ask(session(), ms(0)), Err(Refused::Busy));
    pool.close();
    assert_eq!(pool.decide(ms(1)).len(), MAX_WAITING_STARTS, "each is answered");
}

/// GW-21: random histories. Never more children than allowed; each start is answered once; nothing needed is stopped; starts
/// without a principal are granted in order.
#[test]
fn gw_21_random_histories_keep_the_promises() {
    for seed in 1..200u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let limits = PoolLimits {
            max_children: 1 + next(6) as usize,
            spare: 0,
            start_timeout: ms(2_000 + next(5_000)),
            evicts: next(4) > 0,
        };
        let limits = PoolLimits {
            spare: next(limits.max_children as u64) as usize,
            ..limits
        };
        let mut pool = Pool::new(limits);
        let mut now = ms(0);
        let mut waiting: BTreeMap<WaiterId, Start<&'static str>> = BTreeMap::new();
        let mut needs: BTreeMap<ChildId, Option<Need>> = BTreeMap::new();
        let mut stopping: Vec<ChildId> = Vec::new();
        let mut last_granted: Option<WaiterId> = None;
        for _ in 0..400 {
            now += ms(next(200));
            let running: Vec<ChildId> = needs.keys().copied().collect();
            match (
                next(6),
                running.get(next(running.len().max(1) as u64) as usize).copied(),
            ) {
                (0 | 1, _) => {
                    let principal = [None, Some("ada"), Some("bob")][next(3) as usize];
                    let start = if next(2) == 0 { session() } else { lease(principal) };
                    waiting.insert(pool.ask(start.clone(), now).unwrap(), start);
                }
                (2, Some(child)) => {
                    if needs[&child].is_none() {
                        pool.started(child, now);
                    }
                    let need = if next(2) == 0 {
                        Need::Needed
                    } else {
                        Need::UnneededSince(now)
                    };
                    pool.report(child, need);
                    needs.insert(child, Some(need));
                }
                (3, Some(child)) => {
                    needs.remove(&child);
                    pool.release(child);
                }
                (4, _) if !stopping.is_empty() => {
                    pool.release(stopping.swap_remove(next(stopping.len() as u64) as usize));
                }
                (5, _) => {
                    if let Some(waiter) = waiting.keys().next().copied() {
                        waiting.remove(&waiter);
                        pool.withdraw(waiter);
                    }
                }
                _ => {}
            }
            for action in pool.decide(now) {
                match action {
                    Action::Grant(waiter, child) | Action::Claim(waiter, child) => {
                        let start = waiting.remove(&waiter).expect("a start is answered once");
                        if start.kind == ChildKind::Session {
                            assert!(last_granted < Some(waiter), "seed {seed}: starts are served in order");
                            last_granted = Some(waiter);
                        }
                        needs.insert(child, None);
                    }
                    Action::Refuse(waiter, _) => assert!(waiting.remove(&waiter).is_some(), "once"),
                    Action::Stop(child, cause) => {
                        let need = needs.remove(&child).flatten();
                        let Some(Need::UnneededSince(since)) = need else {
                            panic!("seed {seed}: a child that is needed is stopped")
                        };
                        let least = if cause == StopCause::Idle {
                            ms(60_000)
                        } else {
                            EVICTABLE_AFTER
                        };
                        assert!(now - since >= least, "seed {seed}");
                        assert!(cause == StopCause::Idle || limits.evicts);
                        stopping.push(child);
                    }
                    Action::StartSpare(child) => {
                        pool.started(child, now);
                    }
                }
            }
            assert!(pool.counts().running <= limits.max_children, "seed {seed}");
        }
    }
}
