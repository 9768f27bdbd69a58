SELECT job, trials FROM jobs WHERE state = 'new' ORDER BY job DESC LIMIT 3
