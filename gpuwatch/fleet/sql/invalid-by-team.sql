-- What was invalid last night, by team?
-- Counts each window once, by the worst verdict over its GPUs.  A team is the tag team, else account, else namespace, else
-- the user.
-- since: 24h
WITH every AS (
    SELECT boot_id, run, any_value(team) AS team, any_value(window_status) AS status, any_value(hostname) AS hostname,
           list_distinct(flatten(list(coalesce(found, [])))) AS rules
    FROM windows WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') GROUP BY boot_id, run
), rules AS (
    SELECT team, rule, count(*) AS times FROM (SELECT team, unnest(rules) AS rule FROM every WHERE status <> 'valid') GROUP BY ALL
), most AS (
    SELECT team, string_agg(rule || ' ' || times, ', ' ORDER BY times DESC, rule) FILTER (place <= 3) AS found
    FROM (SELECT *, row_number() OVER (PARTITION BY team ORDER BY times DESC, rule) AS place FROM rules) GROUP BY team
)
SELECT team, count(*) AS windows_count, count(*) FILTER (status <> 'valid') AS invalid_count,
       count(*) FILTER (status = 'rejected') AS rejected_count, count(*) FILTER (status = 'flagged') AS flagged_count,
       count(*) FILTER (status = 'unproven') AS unproven_count,
       count(DISTINCT hostname) FILTER (status <> 'valid') AS nodes_count, min(run) FILTER (status <> 'valid') AS first_run,
       any_value(most.found) AS found
FROM every LEFT JOIN most USING (team) GROUP BY team HAVING count(*) FILTER (status <> 'valid') > 0
ORDER BY invalid_count DESC, team
