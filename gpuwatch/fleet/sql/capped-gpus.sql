-- Which GPU has another power limit than most GPUs of its model?
-- Uses each GPU's latest window.
-- since: 7d
WITH latest AS (
    SELECT gpu_uuid, arg_max(hostname, begun_utc) AS hostname, arg_max(gpu_name, begun_utc) AS gpu_name,
           arg_max(gpu_power_limit_w, begun_utc) AS power_limit_w, max(begun_utc) AS seen_utc
    FROM windows WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND gpu_uuid IS NOT NULL
      AND gpu_power_limit_w IS NOT NULL GROUP BY gpu_uuid
), usual AS (SELECT gpu_name, mode(power_limit_w) AS usual_w FROM latest GROUP BY gpu_name)
SELECT hostname, gpu_uuid, gpu_name, power_limit_w, usual_w, seen_utc::TIMESTAMP AS seen_utc
FROM latest JOIN usual USING (gpu_name)
WHERE power_limit_w <> usual_w ORDER BY hostname, gpu_uuid
