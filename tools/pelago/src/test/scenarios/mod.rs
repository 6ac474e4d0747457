//! All scenarios. The first word of their names is that of the file.

mod acct;
mod audit;
mod bad_executable;
mod bad_neighbour;
mod bad_program;
mod bad_threads;
mod bench;
mod bochs;
mod boot;
mod busy_host;
mod checks;
mod cli;
mod clock;
mod common_memory;
mod cores;
mod counts;
mod coverage;
mod crypto;
mod crypto_calls;
mod damaged_frames;
mod datagrams;
mod disk;
mod disk_calls;
mod disk_option;
mod disk_servers;
mod double_faults;
mod epoll;
mod event_descriptors;
mod ext4;
mod file_pieces;
mod files;
mod first_run;
mod fork_bomb;
mod fuzz;
mod host_files;
mod host_stress;
mod hot_file;
mod idle;
mod keep_alive;
mod killed_processes;
mod layouts;
mod linux_fuzz;
mod local_sockets;
mod mapped_files;
mod memory;
mod mmap;
mod multicore_program;
mod mutants;
mod network_link;
mod nova;
mod objects;
mod open_connections;
mod power_cut;
mod processes;
mod programs;
mod python_suite;
mod random;
mod rare_calls;
mod recovery;
mod recovery_beside_network;
mod redis_suite;
mod server_faults;
mod servers;
mod shared_files;
mod shares;
mod shell;
mod slow_storage;
mod standard_streams;
mod threads;
mod tools;
mod transfers;
mod usage_errors;
mod volume;
mod volume_faults;
mod web;

use crate::test::scenario::Scenario;

/// Every scenario of every tier.
pub fn all() -> Vec<Scenario> {
    let tiers = [
        lower_tiers(),
        programs::scenarios(),
        file_pieces::scenarios(),
        mapped_files::scenarios(),
        files::scenarios(),
        volume::scenarios(),
        clock::scenarios(),
        threads::scenarios(),
        servers::scenarios(),
        redis_suite::scenarios(),
        tools::scenarios(),
        epoll::scenarios(),
        event_descriptors::scenarios(),
        rare_calls::scenarios(),
        coverage::scenarios(),
        mmap::scenarios(),
        common_memory::scenarios(),
        shared_files::scenarios(),
        datagrams::scenarios(),
        local_sockets::scenarios(),
        shell::scenarios(),
        cli::scenarios(),
        host_files::scenarios(),
        disk_option::scenarios(),
        first_run::scenarios(),
        memory::scenarios(),
        standard_streams::scenarios(),
        // The longest of its tier, which else would run on when nothing is left to run beside it.
        double_faults::scenarios(),
        bad_executable::scenarios(),
        bad_neighbour::scenarios(),
        bad_program::scenarios(),
        fork_bomb::scenarios(),
        bad_threads::scenarios(),
        killed_processes::scenarios(),
        linux_fuzz::scenarios(),
        python_suite::scenarios(),
        web::scenarios(),
        network_link::scenarios(),
        hot_file::scenarios(),
        idle::scenarios(),
        audit::scenarios(),
        damaged_frames::scenarios(),
        recovery::scenarios(),
        volume_faults::scenarios(),
        disk_servers::scenarios(),
        slow_storage::scenarios(),
        keep_alive::scenarios(),
        recovery_beside_network::scenarios(),
        processes::scenarios(),
        transfers::scenarios(),
        server_faults::scenarios(),
        busy_host::scenarios(),
        open_connections::scenarios(),
        bench::scenarios(),
        power_cut::scenarios(),
    ];
    tiers.into_iter().flatten().collect()
}

/// Those of the kernel and of components: tiers 0 to 2.
fn lower_tiers() -> Vec<Scenario> {
    let tiers = [
        boot::scenarios(),
        bochs::scenarios(),
        cores::scenarios(),
        crypto::scenarios(),
        crypto_calls::scenarios(),
        shares::scenarios(),
        layouts::scenarios(),
        host_stress::scenarios(),
        mutants::scenarios(),
        ext4::scenarios(),
        usage_errors::scenarios(),
        objects::scenarios(),
        fuzz::scenarios(),
        counts::scenarios(),
        multicore_program::scenarios(),
        nova::scenarios(),
        disk::scenarios(),
        disk_calls::scenarios(),
        acct::scenarios(),
    ];
    tiers.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn a_scenario_has_the_name_of_its_file() {
        let files = include_str!("mod.rs").lines().filter_map(|line| line.trim().strip_suffix("::scenarios(),"));
        let files: BTreeSet<String> = files.map(|file| file.replace('_', "-")).collect();
        let all = super::all();
        let families = all.iter().map(|scenario| scenario.name.split('/').next().unwrap_or_default().to_owned());
        assert_eq!(families.collect::<BTreeSet<_>>(), files);
    }
}
