-- Which node has no recent windows?
-- Lists nodes whose latest window started before --since.  Such nodes run no benchmarks or export nothing; the metric
-- gpuwatch_export_last_success_time_seconds shows the time of the last export.
-- since: 3d
SELECT hostname, max(begun_utc)::TIMESTAMP AS last_utc, count(*) AS windows_count FROM windows
WHERE begun_utc < getvariable('until') GROUP BY hostname HAVING max(begun_utc) < getvariable('since')
ORDER BY last_utc, hostname
