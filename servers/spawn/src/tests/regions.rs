//! Regions: whose they are, of what kind, and who borrows them.

use system::Region;

use super::*;

fn region(name: &str, pages: u32) -> Region {
    Region { name: name.into(), bytes: pages * 4096, contiguous: false, pool: false }
}

/// Starts a component; what of regions was asked for, which is made before it.
async fn regions_for(fake: &Fake, client: &SpawnClient, name: &str) -> Vec<Call> {
    assert!(client.component(name.into(), 1, 0).await.is_ok());
    let calls = fake.calls.take();
    let is_region = |call: &Call| matches!(call, Call::Region(..));
    let is_create = |call: &Call| matches!(call, Call::Create(..));
    assert!(calls.iter().rposition(is_region) < calls.iter().position(is_create), "{calls:?}");
    calls.into_iter().filter(is_region).collect()
}

#[test]
fn a_region_is_its_users_cores_or_the_first_cores_of_which_they_borrow_it() {
    runtime::testing::run(async {
        let regions = |of: &[Region], component| Component { regions: of.into(), ..component };
        let (own, both, between) = (region("own", 2), region("both", 3), region("between", 4));
        let device = Region { contiguous: true, ..region("device", 5) };
        let pool = Region { pool: true, ..region("pool", 6) };
        let components = vec![
            regions(&[own, both.clone(), between.clone(), device, pool.clone()], on(1, "net", &[])),
            regions(std::slice::from_ref(&both), on(1, "fs", &[])),
            regions(&[between, pool], on(2, "ip", &[])),
        ];
        let fake = Rc::new(Fake::default());
        let (_, client) = begin_with(&fake, system_of(components, &[]), 3);
        let call = |core, name: &str, pages, kind, of| Call::Region(core, name.into(), pages, kind, of);
        let lent = Some(region_of(0));
        let expected = [
            call(1, "own", 2, RegionKind::Scattered, None),
            call(1, "both", 3, RegionKind::Scattered, None),
            // Another core reaches what lies together.
            call(0, "between", 4, RegionKind::Contiguous, None),
            call(1, "between", 4, RegionKind::Contiguous, lent),
            call(1, "device", 5, RegionKind::Contiguous, None),
            call(0, "pool", 6, RegionKind::Pool, None),
            call(1, "pool", 6, RegionKind::Pool, lent),
        ];
        assert_eq!(regions_for(&fake, &client, "net").await, expected);
        assert_eq!(regions_for(&fake, &client, "fs").await, [expected[1].clone()]);
        let expected = [
            expected[2].clone(),
            call(2, "between", 4, RegionKind::Contiguous, lent),
            expected[5].clone(),
            call(2, "pool", 6, RegionKind::Pool, lent),
        ];
        assert_eq!(regions_for(&fake, &client, "ip").await, expected);
    });
}

#[test]
fn a_component_whose_region_is_refused_is_not_made() {
    runtime::testing::run(async {
        let component = Component { regions: vec![region("own", 2)], ..on(0, "net", &[]) };
        let fake = Rc::new(Fake { refuses: Cell::new(Some(MonitorError::NoMemory)), ..Fake::default() });
        let (_, client) = begin_with(&fake, system_of(vec![component], &[]), 1);
        assert_eq!(client.component("net".into(), 1, 0).await, Err(CallError::Server(SpawnError::NoMemory)));
        assert_eq!(fake.calls.take(), [Call::Region(0, "own".into(), 2, RegionKind::Scattered, None)]);
    });
}
