//! Every setting that a role, a database or a session can have, in PostgreSQL 13 to 18. The engine's sessions
//! pin it, or it was judged to be harmless.

/// Settings that change neither a value nor which rows a statement sees, and end no session: plans and their
/// costs, logs, statistics, memory, files and WAL; limits whose excess is an error; parsing that no statement
/// of the engine depends on; and settings that only a superuser should have. The check refuses
/// `zero_damaged_pages` and `ignore_checksum_failure`.
pub const JUDGED: &str = "
    allow_in_place_tablespaces allow_system_table_mods application_name backend_flush_after
    backtrace_functions commit_delay commit_siblings composite_type_mismatch compute_query_id
    constraint_exclusion cpu_index_tuple_cost cpu_operator_cost cpu_tuple_cost createrole_self_grant
    cursor_tuple_fraction deadlock_timeout debug_discard_caches debug_logical_replication_streaming
    debug_parallel_query debug_pretty_print debug_print_parse debug_print_plan debug_print_rewritten
    default_statistics_target default_tablespace default_text_search_config
    default_toast_compression dynamic_library_path effective_cache_size effective_io_concurrency
    enable_async_append enable_bitmapscan enable_distinct_reordering enable_gathermerge
    enable_group_by_reordering enable_hashagg enable_hashjoin enable_incremental_sort
    enable_indexonlyscan enable_indexscan enable_material enable_memoize enable_mergejoin
    enable_nestloop enable_parallel_append enable_parallel_hash enable_partition_pruning
    enable_partitionwise_aggregate enable_partitionwise_join enable_presorted_aggregate
    enable_self_join_elimination enable_seqscan enable_sort enable_tidscan escape_string_warning
    event_triggers extension_control_path extension_destdir file_copy_method force_parallel_mode
    from_collapse_limit geqo geqo_effort geqo_generations geqo_pool_size geqo_seed
    geqo_selection_bias geqo_threshold gin_pending_list_limit hash_mem_multiplier
    icu_validation_level ignore_checksum_failure ignore_system_indexes io_combine_limit
    jit_above_cost jit_debugging_support jit_dump_bitcode jit_expressions jit_inline_above_cost
    jit_optimize_above_cost jit_profiling_support jit_tuple_deforming join_collapse_limit
    lc_messages lc_numeric lc_time lo_compat_privileges local_preload_libraries log_connections
    log_disconnections log_duration log_error_verbosity log_executor_stats log_lock_failures
    log_lock_waits log_min_duration_sample log_min_duration_statement log_min_error_statement
    log_min_messages log_parameter_max_length log_parameter_max_length_on_error log_parser_stats
    log_planner_stats log_replication_commands log_statement log_statement_sample_rate
    log_statement_stats log_temp_files log_transaction_sample_rate logical_decoding_work_mem
    maintenance_io_concurrency maintenance_work_mem max_parallel_maintenance_workers
    max_parallel_workers max_parallel_workers_per_gather max_stack_depth md5_password_warnings
    min_parallel_index_scan_size min_parallel_table_scan_size operator_precedence_warning
    output_plugin_libraries parallel_leader_participation parallel_setup_cost parallel_tuple_cost
    password_encryption plpgsql.check_asserts plpgsql.extra_errors
    plpgsql.extra_warnings plpgsql.print_strict_params plpgsql.variable_conflict post_auth_delay
    random_page_cost recursive_worktable_factor restrict_nonsystem_relation_kind scram_iterations
    seq_page_cost session_preload_libraries stats_fetch_consistency synchronize_seqscans
    temp_buffers
    temp_file_limit temp_tablespaces timezone_abbreviations trace_notify trace_sort track_activities
    track_cost_delay_timing track_counts track_functions track_io_timing track_wal_io_timing
    transaction_deferrable transaction_isolation transaction_read_only update_process_title
    vacuum_buffer_usage_limit vacuum_cleanup_index_scale_factor vacuum_cost_delay vacuum_cost_limit
    vacuum_cost_page_dirty vacuum_cost_page_hit vacuum_cost_page_miss vacuum_failsafe_age
    vacuum_freeze_min_age vacuum_freeze_table_age vacuum_max_eager_freeze_failure_rate
    vacuum_multixact_failsafe_age vacuum_multixact_freeze_min_age vacuum_multixact_freeze_table_age
    vacuum_truncate wal_compression wal_consistency_checking wal_init_zero wal_recycle
    wal_sender_timeout wal_skip_threshold work_mem zero_damaged_pages
";

/// Returns the settings that the engine's sessions pin.
pub fn pinned() -> Vec<&'static str> {
    let source = include_str!("../../../src/agent/opening.rs");
    source.split("SET ").skip(1).filter_map(|rest| rest.split(" = ").next()).collect()
}

/// Returns the settings that the workers pin on their master.
pub fn pinned_by_workers() -> Vec<&'static str> {
    let source = include_str!("../../../src/worker/mod.rs");
    source.split("(c\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}
